// Evaluations by step: avg@k, pass@k, maj@k with their intervals.

import { h, fill, section } from "./dom.js";
import { number, percent } from "./format.js";
import { groupsOf, tasks } from "./figures.js";
import { between } from "./header.js";

export function evaluation(state) {
  const body = h("div", {});
  const node = section("evaluation", "Evaluation", body);
  function update() {
    const found = tasks(state.figures);
    fill(body, found.length ? found.flatMap((task) => groupsOf(state.figures).flatMap((group) => group.runs.map((run) => table(state, run, task)))) : h("p.empty.card", {}, "This run has no evaluation yet."));
  }
  update();
  return { node, update };
}

function table(state, run, task) {
  const name = `eval/${task}`;
  const rows = run.evaluations.filter((row) => Object.keys(row).some((key) => key === name || key.startsWith(`${name}/`)));
  if (!rows.length) return null;
  const best = Math.max(...rows.map((row) => row[name] ?? -Infinity));
  const columns = columnsOf(rows, name);
  const title = state.figures.runs.length > 1 ? `${task} · ${run.name}` : task;
  return h("div.card.scroll", { tabindex: "0", role: "region", "aria-label": `Evaluations on ${title}` },
    h("table", {}, h("caption", {}, h("h3", {}, h("bdi", {}, title))),
      h("thead", {}, h("tr", {}, h("th.num", { scope: "col" }, "Step"), columns.map(({ label }) => h("th.num", { scope: "col" }, label)))),
      h("tbody", {}, rows.map((row) => h(row[name] === best && rows.length > 1 ? "tr.best" : "tr", {},
        h("th.num", { scope: "row" }, String(row.step), row[name] === best && rows.length > 1 ? h("span.tag", {}, "best") : null),
        columns.map((column) => h("td.num", {}, cell(row, column))))))));
}

function columnsOf(rows, name) {
  const keys = new Set(rows.flatMap((row) => Object.keys(row)));
  const counted = (kind) => [...keys].map((key) => key.match(new RegExp(`^${escaped(name)}/${kind}@(\\d+)$`))).filter(Boolean).map((found) => Number(found[1])).sort((one, other) => one - other);
  const shares = [{ key: name, label: "Accuracy" }, ...["pass", "maj"].flatMap((kind) => counted(kind).map((k) => ({ key: `${name}/${kind}@${k}`, label: `${kind}@${k}` })))];
  const plain = [["reward", "Reward", number], ["length", "Length", number], ["truncated", "Cut off", percent], ["failed", "No verdict", number]];
  return [
    ...shares.filter(({ key }) => keys.has(key)).map((column) => ({ ...column, format: percent, bounded: true })),
    ...plain.filter(([key]) => keys.has(`${name}/${key}`)).map(([key, label, format]) => ({ key: `${name}/${key}`, label, format })),
  ];
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function cell(row, { key, format, bounded }) {
  const bounds = bounded && between({ low: row[`${key}/low`] ?? null, high: row[`${key}/high`] ?? null });
  return [format(row[key]), bounds ? h("span.below", {}, bounds) : null];
}
