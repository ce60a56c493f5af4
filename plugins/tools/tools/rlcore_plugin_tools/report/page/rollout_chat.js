// The messages after the prompt: who wrote each, what trains, tool calls and long results folded.

import { h, visible } from "./dom.js";
import { number, count } from "./format.js";

const shortResult = 240; // characters of a tool's result that is not folded

export function chatNodes(chat) {
  const branches = Math.max(0, ...chat.map((turn) => turn.branch ?? 0));
  let branch;
  const nodes = chat.map((turn) => {
    if (turn.left_out) return h("p.gap", {}, `${count(turn.left_out, "message")} left out here`);
    const begins = turn.branch !== branch;
    branch = turn.branch;
    return [begins && h("p.gap.branch", {}, [`branch ${branch} of ${branches}`, turn.branch_reward !== undefined && `reward ${number(turn.branch_reward)}`].filter(Boolean).join(" · ")), turnNode(turn)];
  });
  return [
    h("p.note.legend", {}, h("span", {}, h("i.swatch-policy", {}), "the policy wrote this, and it trains"), h("span", {}, h("i.swatch-other", {}), "others wrote this, or it does not train: it is masked")),
    h("div.chat", {}, nodes),
  ];
}

function turnNode(turn) {
  const told = [
    turn.tokens !== undefined && count(turn.tokens, "token"),
    turn.reward !== undefined && `reward ${number(turn.reward)}`,
    turn.role === "assistant" && !turn.policy && "does not train",
  ].filter(Boolean);
  const role = h("span.role", {}, h("bdi", {}, visible([turn.role || "message", turn.name].filter(Boolean).join(" "))), told.length > 0 && h("span.quiet", {}, ` · ${told.join(" · ")}`));
  return h(`div.turn${turn.policy ? ".policy" : ""}`, {}, role, textOf(turn), (turn.calls ?? []).map(callNode));
}

function textOf(turn) {
  const length = turn.pieces.reduce((sum, [text]) => sum + text.length, 0);
  if (!length) return turn.calls?.length ? null : h("div.text", {}, h("span.quiet", {}, "(empty)"));
  const body = h("div.text", { dir: "auto", tabindex: "0" },
    turn.pieces.map(([text, inserted]) => (inserted ? h("span.inserted", { title: "inserted: the policy did not write this" }, visible(text)) : visible(text))),
    turn.cut && h("span.cut", {}, `${count(turn.cut, "character")} left out here`));
  if (turn.role !== "tool" || length <= shortResult) return body;
  return h("details.folded", {}, h("summary", {}, "Result ", h("span.quiet", {}, h("bdi", {}, firstLine(turn.pieces[0][0])))), body);
}

function callNode([name, args]) {
  return h("details.folded", {}, h("summary", {}, "Call ", h("bdi.mono", {}, visible(name)), " ", h("span.quiet.mono", {}, h("bdi", {}, firstLine(args)))), h("div.text", { dir: "auto", tabindex: "0" }, visible(indented(args))));
}

function firstLine(text) {
  const line = visible(text.trim().split("\n", 1)[0]);
  return line.length > 80 ? `${line.slice(0, 80)}…` : line;
}

function indented(args) {
  try {
    return JSON.stringify(JSON.parse(args), null, 2);
  } catch {
    return args; // a model may call a tool with anything
  }
}
