// Learning curves: the ones that say how a run goes, then every other figure.

import { h, fill, section, select, remember } from "./dom.js";
import { byUnit, words } from "./format.js";
import { axisOf, color, cssColor, groupsOf, names, placeOf, tasks, unitOf } from "./figures.js";
import { chartCard, forget, redrawAll } from "./chart.js";
import { smoothed, together } from "./smooth.js";

// [title, names, more]: all names in one chart; `*` stands for the rest of a name. `band`: two figures that bound the first. `otherwise`:
// what is drawn if there is none of them. `several`: one of them alone says nothing.
const charts = [
  ["Reward", ["reward/mean"]],
  ["Accuracy in training", ["reward/accuracy"]],
  ["Response length", ["response_length/mean"], { band: ["response_length/p10", "response_length/p90"] }],
  ["Entropy", ["entropy/sampled", "entropy"]],
  ["KL to the reference: distance from the first model", ["kl_reference"]],
  ["KL within an update: movement", ["kl_old"]],
  ["Clip fraction: clipped tokens", ["loss/clip_low", "loss/clip_high"], { otherwise: ["loss/clip_fraction"] }],
  ["Ratio: tokens outside 0.9 to 1.1", ["ratio_outside"], { otherwise: ["ratio_mean"] }],
  ["Log probabilities: trainer and sampler apart", ["sampler_gap"]],
  ["Effective sample size", ["effective_sample_size"]],
  ["Groups without spread", ["groups/zero_spread"]],
  ["Spread within a group", ["reward/group_std"]],
  ["Parts of the reward", ["reward/part/*"], { several: true }],
  ["Cut-off responses", ["truncated"]],
  ["Gradient norm", ["grad_norm"]],
  ["Learning rate", ["learning_rate"]],
  ["Staleness", ["staleness/mean", "staleness/max"]],
  ["Throughput", ["tokens_per_second"]],
];
const elsewhere = [/^time\//, /^seconds$/, /^eval\//]; // have a section of their own
const families = [
  ["Rewards", /^(reward|outcome|groups|filter)/],
  ["Responses", /^(response|turns|temperature|cut_share|entropy|truncated)/],
  ["Schedule", /^(staleness|tokens_per_second|mfu)/],
  ["Update", /./],
];
const dashes = [undefined, [5, 4], [2, 3], [8, 3, 2, 3]];

export function curves(state) {
  const body = h("div", {});
  const node = section("learning", "Learning", controls(state, () => redrawAll()), body);
  let made = [];
  let known = "";
  function update() {
    const now = JSON.stringify([names(state.figures), tasks(state.figures), state.figures.groups, outcomes(state.figures)]);
    if (now === known) return void redrawAll(made);
    known = now;
    forget(made);
    const main = mainCharts(state);
    const rest = otherCharts(state, main);
    made = [...main, ...rest.flatMap(([, found]) => found)];
    fill(body, state.figures.runs.every((run) => !run.steps.length) && h("p.empty.card", {}, "No update has been made yet: there are no curves."),
      h("div.charts", {}, main.map((chart) => chart.node)),
      rest.map(([name, found]) => h("details.more", {}, h("summary", {}, name, " ", h("span.quiet", {}, String(found.length))), h("div.charts", {}, found.map((chart) => chart.node)))));
  }
  update();
  return { node, update };
}

function controls(state, changed) {
  const shown = h("output", { for: "smoothing" }, state.smoothing.toFixed(2));
  const slider = h("input", { id: "smoothing", type: "range", min: 0, max: 0.98, step: 0.02, value: state.smoothing, oninput: () => {
    state.smoothing = Number(slider.value);
    shown.textContent = state.smoothing.toFixed(2);
    remember("smoothing", slider.value);
    changed();
  } });
  const axes = [["step", "update"], ["seconds", "minutes"], ["tokens", "tokens"]];
  return h("div.controls", {},
    h("label.field", {}, h("span", {}, "Smoothing"), slider, shown),
    select("Over", axes, (value) => {
      state.axis = value;
      changed();
    }),
    h("p.note", {}, "Faint lines are the raw values. Drag to zoom, double-click to see all again."));
}

function mainCharts(state) {
  const found = tasks(state.figures).map((task) => evaluationChart(state, task));
  for (const [title, wanted, more] of charts) {
    let there = expanded(state.figures, wanted);
    if (!there.length) there = expanded(state.figures, more?.otherwise ?? []);
    if (there.length > (more?.several ? 1 : 0)) found.push(curveChart(state, title, there, more?.band));
  }
  if (outcomes(state.figures).length) found.push(outcomeChart(state));
  return found;
}

function otherCharts(state, main) {
  const shown = new Set(main.flatMap((chart) => chart.names));
  const groups = new Map();
  for (const name of names(state.figures)) {
    if (shown.has(name) || elsewhere.some((pattern) => pattern.test(name)) || outcomes(state.figures).includes(name)) continue;
    const family = families.find(([, pattern]) => pattern.test(name))[0];
    if (!groups.has(family)) groups.set(family, []);
    groups.get(family).push(curveChart(state, name, [name]));
  }
  return families.filter(([name]) => groups.has(name)).map(([name]) => [`More: ${name.toLowerCase()}`, groups.get(name)]);
}

function expanded(figures, wanted) {
  const there = names(figures);
  return wanted.flatMap((name) => (name.endsWith("*") ? there.filter((one) => one.startsWith(name.slice(0, -1)) && !one.endsWith("/accuracy")) : there.includes(name) ? [name] : []));
}

function curveChart(state, title, wanted, band) {
  const note = wanted.map((name) => `${name}: ${state.figures.metrics[name]?.text ?? "a figure of a plugin"}`).join("\n");
  const chart = chartCard(title, note, () => ({
    lines: groupsOf(state.figures).flatMap((group) => wanted.flatMap((name, place) => linesOf(state, group, name, place, wanted.length, band))),
    format: byUnit(unitOf(state.figures, wanted[0])),
    marks: marksOf(state),
    ...xOf(state),
  }));
  chart.names = [...wanted, ...(band ?? [])];
  return chart;
}

function xOf(state) {
  return { xLabel: { step: "step", seconds: "minute", tokens: "token" }[state.axis] };
}

function marksOf(state) {
  return state.figures.runs.flatMap((run) => (run.manifest.resumes ?? []).map((resume) => placeOf(run, state.axis, resume.step)));
}

// With one group the names have the colours, with several the groups.
function linesOf(state, group, name, place, many, band) {
  const several = state.figures.groups.length > 1;
  const shade = color(several ? group.place : place);
  const label = several ? (many > 1 ? `${short(name)}, ${group.label}` : group.label) : short(name);
  const raw = group.runs.filter((run) => run.series[name]).map((run) => [run.steps, axisOf(run, state.axis), run.series[name]]);
  if (!raw.length) return [];
  const smooth = raw.map(([steps, xs, values]) => [steps, xs, smoothed(values, state.smoothing)]);
  const mean = smooth.length > 1 ? together(smooth) : { xs: smooth[0][1], ys: smooth[0][2], told: raw[0][2], ...bandOf(group.runs[0], band, state.smoothing) };
  const faint = state.smoothing > 0 || raw.length > 1 ? raw.map(([, xs, ys]) => ({ label, color: shade, faint: true, xs, ys })) : [];
  return [...faint, { label, color: shade, dash: several ? dashes[place] : undefined, ...mean }];
}

function bandOf(run, band, weight) {
  return band && band.every((name) => run.series[name]) ? { low: smoothed(run.series[band[0]], weight), high: smoothed(run.series[band[1]], weight) } : {};
}

function short(name) {
  return words(name.split("/").slice(-1)[0]);
}

function evaluationChart(state, task) {
  const name = `eval/${task}`;
  const chart = chartCard(`Accuracy on ${task}`, `${name}: ${state.figures.metrics[name]?.text ?? "mean accuracy"}`, () => ({
    lines: groupsOf(state.figures).flatMap((group) => {
      const shade = color(group.place);
      const of = group.runs.map((run) => ({ run, rows: run.evaluations.filter((row) => (row[name] ?? null) !== null) })).filter(({ rows }) => rows.length);
      if (!of.length) return [];
      const all = of.map(({ run, rows }) => [rows.map((row) => row.step), rows.map((row) => placeOf(run, state.axis, row.step)), rows.map((row) => row[name])]);
      if (all.length > 1) return [...all.map(([, xs, ys]) => ({ label: group.label, color: shade, faint: true, xs, ys })), { label: group.label, color: shade, ...together(all) }];
      const { rows } = of[0];
      const bounded = rows.some((row) => (row[`${name}/low`] ?? null) !== null);
      const bounds = bounded ? { low: rows.map((row) => row[`${name}/low`] ?? null), high: rows.map((row) => row[`${name}/high`] ?? null) } : {};
      return [{ label: group.label, color: shade, xs: all[0][1], ys: all[0][2], ...bounds }];
    }),
    format: byUnit("share"),
    marks: marksOf(state),
    ...xOf(state),
  }));
  chart.names = [name];
  return chart;
}

// --- outcomes -----------------------------------------------------------------------------------------------------------

export const outcomeColors = { ok: "--green", wrong: "--orange", malformed: "--purple", unparseable: "--brown", timeout: "--red", error: "--red", infra: "--grey" };

function outcomes(figures) {
  const there = names(figures);
  const now = there.filter((name) => /^outcome\//.test(name));
  return now.length ? now : there.filter((name) => /^reward\/outcome\//.test(name));
}

function outcomeChart(state) {
  const order = Object.keys(outcomeColors);
  const rank = (name) => (order.indexOf(short(name)) + order.length + 1) % (order.length + 1);
  const chart = chartCard("Outcomes", "shares of rollouts by how their verdict ended", () => {
    const run = groupsOf(state.figures)[0].runs[0];
    const found = outcomes(state.figures).filter((name) => run.series[name]).sort((one, other) => rank(one) - rank(other));
    return {
      stacked: true,
      range: [0, 1],
      lines: found.map((name) => ({
        label: short(name),
        color: cssColor(outcomeColors[short(name)] ?? "--grey"),
        xs: axisOf(run, state.axis),
        ys: smoothed(run.series[name], state.smoothing),
      })),
      format: byUnit("share"),
      marks: marksOf(state),
      ...xOf(state),
    };
  });
  chart.names = outcomes(state.figures);
  return chart;
}
