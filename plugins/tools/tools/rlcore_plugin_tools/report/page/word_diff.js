// What two answers have in common, word by word.

import { h } from "./dom.js";

const mostWords = 3000; // words of each that are compared; the table has their product as cells

// [["same" | "gone" | "new", text], …]: the first text is made of what is not new, the second of what is not gone.
function wordDiff(before, after) {
  const one = wordsOf(before);
  const other = wordsOf(after);
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start++;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  const parts = [];
  add(parts, "same", one.slice(0, start));
  middle(parts, one.slice(start, one.length - end), other.slice(start, other.length - end));
  add(parts, "same", one.slice(one.length - end));
  return parts;
}

function wordsOf(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s]/gu) ?? [];
}

function add(parts, kind, words) {
  if (!words.length) return;
  const before = parts[parts.length - 1];
  if (before?.[0] === kind) before[1] += words.join("");
  else parts.push([kind, words.join("")]);
}

function middle(parts, one, other) {
  if (one.length > mostWords || other.length > mostWords || !one.length || !other.length) {
    add(parts, "gone", one);
    add(parts, "new", other);
    return;
  }
  const width = other.length + 1;
  const common = new Uint16Array((one.length + 1) * width); // the longest common subsequence of the two rests
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      common[i * width + j] = one[i] === other[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  let i = 0;
  let j = 0;
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) {
      add(parts, "same", [one[i]]);
      i++;
      j++;
    } else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) add(parts, "gone", [one[i++]]);
    else add(parts, "new", [other[j++]]);
  }
  add(parts, "gone", one.slice(i));
  add(parts, "new", other.slice(j));
}

export function diffNodes(before, after, show) {
  return wordDiff(before, after).map(([kind, text]) => (kind === "same" ? show(text) : h(kind === "gone" ? "del" : "ins", {}, show(text))));
}
