// One rollout: prompt, answer, how its reward came about, its group, and the answers to the same prompt at other steps.

import { h, visible } from "./dom.js";
import { number, count } from "./format.js";
import { outcomeColors } from "./curves.js";
import { answersTo } from "./rollout_filter.js";
import { chatNodes } from "./rollout_chat.js";
import { diffNodes } from "./word_diff.js";

const mostOffered = 60; // answers to one prompt that are offered

export function rolloutDetail(rollouts, row, state, go) {
  const { columns, prompts } = rollouts;
  const prompt = prompts[columns.prompt[row]];
  return [
    h("div.detail-tags", {}, tagsOf(rollouts, row, state).map((text) => h("span.tag", {}, text))),
    h("h4", {}, "Prompt ", h("span.quiet", {}, h("bdi", {}, visible(prompt.id)))),
    prompt.messages.length ? prompt.messages.map(([role, text]) => h("div.message", {}, h("span.role", {}, visible(role)), h("div.text", { dir: "auto" }, visible(text)))) : h("p.note", {}, "The log of this run does not hold prompts."),
    h("h4", {}, rollouts.sparse.chat?.[row] ? "Conversation " : "Answer ", h("span.quiet", {}, [columns.length[row] !== null && count(columns.length[row], "token"), columns.finish[row] && `ended by ${columns.finish[row]}`].filter(Boolean).join(" · "))),
    rollouts.sparse.chat?.[row] ? chatNodes(rollouts.sparse.chat[row]) : h("div.text.answer", { dir: "auto", tabindex: "0" }, answerNodes(rollouts, row)),
    verdict(rollouts, row, prompt),
    groupOf(rollouts, row, go),
    overTraining(rollouts, row, state),
  ];
}

function tagsOf(rollouts, row, state) {
  const { columns, sources } = rollouts;
  const source = sources[columns.source[row]];
  return [
    state.figures.runs.length > 1 && state.figures.runs[columns.run[row]]?.name,
    source === "training" ? "training" : `evaluation ${source}`,
    `step ${columns.step[row]}`,
    columns.kind[row],
    columns.index[row] !== null && `answer ${columns.index[row]}`,
    columns.episode[row] !== null && `episode ${columns.episode[row]}`,
    columns.version[row] !== null && `weights of version ${columns.version[row]}`,
    columns.temperature[row] !== null && `temperature ${number(columns.temperature[row])}`,
    columns.masked[row] && "masked: its group was filtered out",
  ].filter(Boolean);
}

function answerNodes(rollouts, row) {
  const text = rollouts.columns.text[row];
  const cut = rollouts.sparse.cut[row];
  if (!text) return h("span.quiet", {}, "(empty)");
  if (!cut) return visible(text);
  return [visible(text.slice(0, cut[0])), h("span.cut", {}, `${count(cut[1], "character")} left out here`), visible(text.slice(cut[0]))];
}

// --- reward -------------------------------------------------------------------------------------------------------------

function verdict(rollouts, row, prompt) {
  const { columns, sparse } = rollouts;
  const outcome = columns.outcome[row];
  const facts = [
    ["Reward", h("strong", {}, number(columns.reward[row]))],
    ["Advantage", columns.advantage[row] === null ? null : signed(columns.advantage[row])],
    ["Outcome", h("span.outcome", {}, h("i.swatch", { style: { background: `var(${outcomeColors[outcome] ?? "--grey"})` } }), outcome || "–")],
    ["Reason", columns.reason[row] && h("bdi", {}, visible(columns.reason[row]))],
    ["Accuracy", columns.accuracy[row] === null ? null : number(columns.accuracy[row])],
    ["Form", columns.format_ok[row] === null ? null : columns.format_ok[row] ? "right" : "wrong"],
    ["Judged answer", columns.parsed[row] && h("bdi.mono", {}, visible(columns.parsed[row]))],
    ["Gold answer", prompt.gold && h("bdi.mono", {}, visible(prompt.gold))],
    ["By turn", sparse.turns[row] && sparse.turns[row].map((value) => number(value)).join(", ")],
    ...Object.entries(sparse.extra?.[row] ?? {}).map(([name, value]) => [h("bdi", {}, visible(name)), number(value)]),
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return [h("h4", {}, "Reward"), h("dl.facts-grid", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))), partsOf(sparse.parts[row])];
}

function partsOf(parts) {
  if (!parts) return null;
  const widest = Math.max(...Object.values(parts).map((value) => Math.abs(value ?? 0)), 1e-12);
  return h("table.parts", {}, h("caption", {}, "Parts"), h("tbody", {}, Object.entries(parts).map(([name, value]) => h("tr", {},
    h("th", { scope: "row" }, h("bdi", {}, visible(name))),
    h("td.part-bar", {}, h(`i${(value ?? 0) < 0 ? ".negative" : ""}`, { style: { width: `${(100 * Math.abs(value ?? 0)) / widest}%` } })),
    h("td.num", {}, number(value))))));
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

// --- the others ---------------------------------------------------------------------------------------------------------

function chip(rollouts, other, row, text, pressed, go) {
  const outcome = rollouts.columns.outcome[other];
  return h("button.chip", { type: "button", "aria-pressed": pressed ? "true" : "false", "aria-current": other === row ? "true" : null, onclick: () => go(other) },
    h("i.swatch", { style: { background: `var(${outcomeColors[outcome] ?? "--grey"})` } }), text);
}

function groupOf(rollouts, row, go) {
  const { columns } = rollouts;
  const same = (name, other) => columns[name][other] === columns[name][row];
  const group = answersTo(rollouts, row).filter((other) => ["run", "source", "step", "episode"].every((name) => same(name, other)));
  if (group.length < 2) return null;
  return [h("h4", {}, "Its group ", h("span.quiet", {}, "rewards of the answers that were sampled together")), h("div.chips", {}, group.map((other) => chip(rollouts, other, row, number(columns.reward[other]), other === row, go)))];
}

function overTraining(rollouts, row, state) {
  const { columns } = rollouts;
  const all = answersTo(rollouts, row).filter((other) => columns.step[other] !== columns.step[row] || columns.run[other] !== columns.run[row]);
  const steps = h("div.chips", {});
  const compared = h("div", { "aria-live": "polite" });
  if (!all.length) return [h("h4", {}, "Over training"), h("p.note", {}, "There is no answer to this prompt at another step.")];
  const offered = onePerStep(columns, all, row);
  const several = state.figures.runs.length > 1;
  const label = (other) => `${several ? `${state.figures.runs[columns.run[other]]?.name.slice(-6)} · ` : ""}step ${columns.step[other]} · ${number(columns.reward[other])}`;
  function compare(other) {
    steps.replaceChildren(...offered.map((one) => chip(rollouts, one, row, label(one), one === other, compare)));
    const [first, second] = columns.step[other] <= columns.step[row] ? [other, row] : [row, other];
    compared.replaceChildren(
      h("p.note", {}, h("del", {}, `only at step ${columns.step[first]}`), " ", h("ins", {}, `only at step ${columns.step[second]}`)),
      h("div.text.diff", { dir: "auto", tabindex: "0" }, diffNodes(columns.text[first], columns.text[second], visible)));
  }
  compare(offered.find((other) => columns.step[other] < columns.step[row]) ?? offered[offered.length - 1]);
  return [h("h4", {}, "Over training ", h("span.quiet", {}, "this answer beside one to the same prompt at another step")), steps, compared];
}

// Of each other step the answer with the same index, or else its first.
function onePerStep(columns, all, row) {
  const found = new Map();
  for (const other of all) {
    const key = `${columns.run[other]} ${columns.step[other]} ${columns.source[other]}`;
    if (!found.has(key) || columns.index[other] === columns.index[row]) found.set(key, other);
  }
  return [...found.values()].slice(0, mostOffered);
}
