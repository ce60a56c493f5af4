// A list of any length of which only the rows in sight are nodes.

import { h, fill, visible } from "./dom.js";
import { number } from "./format.js";
import { outcomeColors } from "./curves.js";

const rowHeight = 64;
const beyond = 6;

export function rolloutList(choose) {
  const space = h("div.list-space", {});
  const node = h("div.list", { id: "rollout-list", role: "listbox", tabindex: "0", "aria-label": "Rollouts" }, space);
  const list = { node, space, rows: [], rollouts: null, chosen: -1, choose };
  node.addEventListener("scroll", () => drawRows(list), { passive: true });
  node.addEventListener("click", (event) => {
    const option = event.target.closest("[data-place]");
    if (option) choose(Number(option.dataset.place));
  });
  new ResizeObserver(() => drawRows(list)).observe(node);
  return list;
}

export function showRows(list, rollouts, rows, chosen) {
  list.rollouts = rollouts;
  list.rows = rows;
  list.chosen = chosen;
  list.space.style.height = `${rows.length * rowHeight}px`;
  drawRows(list);
}

export function bringIntoSight(list, place) {
  list.chosen = place;
  const top = place * rowHeight;
  const { scrollTop, clientHeight } = list.node;
  if (top < scrollTop) list.node.scrollTop = top;
  else if (top + rowHeight > scrollTop + clientHeight) list.node.scrollTop = top + rowHeight - clientHeight;
  drawRows(list);
}

function drawRows(list) {
  const { node, rows } = list;
  const first = Math.max(0, Math.floor(node.scrollTop / rowHeight) - beyond);
  const end = Math.min(rows.length, Math.ceil((node.scrollTop + node.clientHeight) / rowHeight) + beyond);
  const options = [];
  for (let place = first; place < end; place++) options.push(option(list, place));
  fill(list.space, options);
  if (list.chosen >= first && list.chosen < end) node.setAttribute("aria-activedescendant", `rollout-${list.chosen}`);
  else node.removeAttribute("aria-activedescendant");
}

function option(list, place) {
  const { columns, prompts, sources } = list.rollouts;
  const row = list.rows[place];
  const prompt = prompts[columns.prompt[row]];
  const outcome = columns.outcome[row];
  const reward = columns.reward[row];
  return h("div.row", { id: `rollout-${place}`, role: "option", "data-place": place, "aria-selected": place === list.chosen ? "true" : "false", "aria-setsize": list.rows.length, "aria-posinset": place + 1, style: { transform: `translateY(${place * rowHeight}px)` } },
    h("i.edge", { style: { background: `var(${outcomeColors[outcome] ?? "--grey"})` } }),
    h("div.row-text", {},
      h("div.row-head", {}, `step ${columns.step[row]}`, columns.source[row] !== null && sources[columns.source[row]] !== "training" ? h("span.tag", {}, sources[columns.source[row]]) : null, h("span", {}, outcome), columns.masked[row] ? h("span.tag", {}, "masked") : null),
      h("bdi.row-answer", {}, preview(columns.text[row])),
      h("bdi.row-prompt", {}, preview(prompt.messages.length ? prompt.messages[prompt.messages.length - 1][1] : prompt.id))),
    h("span.row-reward", {}, number(reward)));
}

function preview(text) {
  return visible(text.slice(0, 300)).replace(/\s+/g, " ").trim().slice(0, 140) || "(empty)";
}
