// Evaluations by step: avg@k, pass@k, maj@k with their intervals.

import { h, fill, section } from "./dom.js";
import { number, percent } from "./format.js";
import { groupsOf, tasks } from "./figures.js";
import { meanOf } from "./smooth.js";
import { between } from "./header.js";

export function evaluation(state) {
  const body = h("div", {});
  const node = section("evaluation", "Evaluation", body);
  function update() {
    const found = tasks(state.figures);
    fill(body, found.length ? found.flatMap((task) => groupsOf(state.figures).map((group) => ofGroup(state, group, task))) : h("p.empty.card", {}, "This run has no evaluation yet."));
  }
  update();
  return { node, update };
}

// Of several seeds first their mean; what each of them did is below it.
function ofGroup(state, group, task) {
  const several = state.figures.groups.length > 1 || group.runs.length > 1;
  if (group.runs.length === 1) return table(group.runs[0].evaluations, task, several ? `${task} · ${group.label}` : task);
  return [table(overSeeds(group.runs, `eval/${task}`), task, `${task} · ${group.label} · mean and 95 % interval over seeds`),
    h("details.more", {}, h("summary", {}, "Each of them ", h("span.quiet", {}, String(group.runs.length))), group.runs.map((run) => table(run.evaluations, task, `${task} · ${run.name}`)))];
}

function overSeeds(runs, name) {
  const steps = [...new Set(runs.flatMap((run) => run.evaluations.map((row) => row.step)))].sort((one, other) => one - other);
  const keys = [...new Set(runs.flatMap((run) => run.evaluations.flatMap((row) => Object.keys(row))))].filter((key) => key.startsWith(name) && !/\/(low|high)$/.test(key));
  return steps.map((step) => {
    const row = { step };
    for (const key of keys) {
      const { mean, low, high } = meanOf(runs.map((run) => run.evaluations.find((one) => one.step === step)?.[key]));
      Object.assign(row, { [key]: mean, [`${key}/low`]: low, [`${key}/high`]: high });
    }
    return row;
  });
}

function table(evaluations, task, title) {
  const name = `eval/${task}`;
  const rows = evaluations.filter((row) => Object.keys(row).some((key) => key === name || key.startsWith(`${name}/`)));
  if (!rows.length) return null;
  const best = Math.max(...rows.map((row) => row[name] ?? -Infinity));
  const columns = columnsOf(rows, name);
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
