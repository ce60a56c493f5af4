// Which rollouts are in the list, and in which order. Ten thousand are gone through at each key, so columns are read, not rows.

export function filtered(rollouts, wanted) {
  const { columns } = rollouts;
  const tests = [];
  const equal = (name, value) => value !== "" && tests.push((row) => String(columns[name][row]) === value);
  equal("run", wanted.run);
  equal("source", wanted.source);
  equal("outcome", wanted.outcome);
  equal("kind", wanted.kind);
  bound(tests, columns.step, wanted.fromStep, wanted.toStep);
  bound(tests, columns.reward, wanted.fromReward, wanted.toReward);
  const text = wanted.text.trim().toLowerCase();
  if (text) {
    const hay = haystack(rollouts);
    tests.push((row) => hay[row].includes(text));
  }
  const found = [];
  for (let row = 0; row < rollouts.count; row++) if (tests.every((test) => test(row))) found.push(row);
  return sorted(columns, found, wanted.order);
}

function bound(tests, column, from, to) {
  if (from !== null) tests.push((row) => column[row] !== null && column[row] >= from);
  if (to !== null) tests.push((row) => column[row] !== null && column[row] <= to);
}

// Everything that a search looks at, in small letters: made once, before the first search.
export function haystack(rollouts) {
  if (!rollouts.haystack) {
    const prompts = rollouts.prompts.map((prompt) => `${prompt.id}\n${prompt.messages.map(([, text]) => text).join("\n")}\n${prompt.gold}`.toLowerCase());
    const { text, prompt, reason, parsed } = rollouts.columns;
    const chat = (row) => (rollouts.sparse.chat?.[row] ?? []).map((turn) => `${(turn.pieces ?? []).map(([piece]) => piece).join("")}\n${(turn.calls ?? []).flat().join("\n")}`).join("\n").toLowerCase();
    rollouts.haystack = Array.from({ length: rollouts.count }, (_, row) => `${chat(row)}\n${text[row].toLowerCase()}\n${prompts[prompt[row]]}\n${reason[row].toLowerCase()}\n${parsed[row].toLowerCase()}`);
  }
  return rollouts.haystack;
}

export const orders = [
  ["", "step"],
  ["-step", "step, newest first"],
  ["-reward", "reward, highest first"],
  ["reward", "reward, lowest first"],
  ["-advantage", "advantage, highest first"],
  ["advantage", "advantage, lowest first"],
  ["-length", "length, longest first"],
  ["length", "length, shortest first"],
];

function sorted(columns, rows, order) {
  if (!order) return rows;
  const down = order.startsWith("-");
  const column = columns[down ? order.slice(1) : order];
  const missing = down ? -Infinity : Infinity;
  const sign = down ? -1 : 1;
  return rows.sort((one, other) => sign * ((column[one] ?? missing) - (column[other] ?? missing)) || one - other);
}

// Who a rollout is, also when the data is read anew.
export function keyOf(rollouts, row) {
  const { columns } = rollouts;
  return [columns.run[row], rollouts.sources[columns.source[row]], columns.step[row], columns.episode[row], rollouts.prompts[columns.prompt[row]].id, columns.index[row]].join("\u0001");
}

export function answersTo(rollouts, row) {
  const { columns } = rollouts;
  const found = [];
  for (let other = 0; other < rollouts.count; other++) if (columns.prompt[other] === columns.prompt[row]) found.push(other);
  return found.sort((one, other) => columns.step[one] - columns.step[other] || columns.run[one] - columns.run[other] || columns.index[one] - columns.index[other]);
}
