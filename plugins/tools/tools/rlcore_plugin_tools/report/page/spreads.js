// How lengths and rewards spread at each step: shades for counts, lines for percentiles.

import { h, fill, section } from "./dom.js";
import { number, count } from "./format.js";
import { color, cssColor } from "./figures.js";
import { chartCard, forget, redrawAll } from "./chart.js";

const fewLevels = 8; // 0 and 1, say: percentiles would jump between them

export function spreads(state) {
  const body = h("div", {});
  const node = section("distributions", "Distributions", body);
  let made = [];
  let known = "";
  function update() {
    const told = state.rollouts?.told;
    if (!told) return void fill(body, h("p.empty.card", {}, "Reading the rollouts …"));
    const there = told.map((one, run) => [run, one]).filter(([, one]) => one.spreads.length || one.spreads.reward);
    const now = JSON.stringify(there.map(([run, one]) => [run, !one.spreads.length, !one.spreads.reward]));
    if (now === known) return void redrawAll(made);
    known = now;
    forget(made);
    made = there.flatMap(([run]) => [["reward", "Rewards"], ["length", "Response lengths, tokens"]].filter(([key]) => state.rollouts.told[run].spreads[key]).map(([key, title]) => spreadChart(state, run, key, title)));
    const read = there.map(([, one]) => (one.steps_read < one.steps_logged ? `${one.steps_read} of ${one.steps_logged} logged steps` : count(one.steps_read, "logged step")))[0];
    fill(body, made.length ? [h("p.note", {}, `Of every sampled rollout of ${read}. Darker: more rollouts. Line: the median, or of few different values the mean; dashes: 10th and 90th percentile.`), byRun(state, there.map(([run]) => run), made)]
      : h("p.empty.card", {}, "This run has logged no rollouts: there is nothing to draw."));
  }
  update();
  return { node, update };
}

// Of several runs the first is open.
export function byRun(state, runs, made) {
  const of = (run) => h("div.charts.few", {}, made.filter((chart) => chart.run === run).map((chart) => chart.node));
  if (runs.length === 1) return of(runs[0]);
  return runs.map((run, place) => h("details.more", { open: place === 0 }, h("summary", {}, h("bdi", {}, state.figures.runs[run].name)), of(run)));
}

function spreadChart(state, run, key, title) {
  const chart = chartCard(title, "", () => {
    const told = state.rollouts.told[run]?.spreads[key];
    if (!told) return { lines: [] };
    const { low, high } = told;
    const pad = (high - low) * 0.04;
    const ink = cssColor("--ink");
    const edge = (name) => ({ label: name.replace("p", "") + "th", color: color(1), dash: [4, 3], xs: told.steps, ys: told[name] });
    return {
      cells: { xs: told.steps, low, high, counts: told.counts },
      range: [low - pad, high + pad],
      lines: told.counts[0].length <= fewLevels ? [{ label: "mean", color: ink, xs: told.steps, ys: told.mean }] : [edge("p10"), { label: "median", color: ink, xs: told.steps, ys: told.p50 }, edge("p90")],
      format: number,
    };
  });
  chart.run = run;
  return chart;
}
