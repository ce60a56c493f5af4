// How lengths and rewards spread at each step: shades for counts, lines for percentiles.

import { h, fill, section } from "./dom.js";
import { number, count } from "./format.js";
import { color, cssColor } from "./figures.js";
import { chartCard, forget, redrawAll } from "./chart.js";

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
    fill(body, made.length ? [h("p.note", {}, `Of every sampled rollout of ${read}. Darker: more rollouts. Line: median; dashes: 10th and 90th percentile.`), h("div.charts", {}, made.map((chart) => chart.node))]
      : h("p.empty.card", {}, "This run has logged no rollouts: there is nothing to draw."));
  }
  update();
  return { node, update };
}

function spreadChart(state, run, key, title) {
  const several = state.figures.runs.length > 1;
  return chartCard(several ? `${title} · ${state.figures.runs[run].name}` : title, "", () => {
    const told = state.rollouts.told[run]?.spreads[key];
    if (!told) return { lines: [] };
    const flat = told.low === told.high;
    const low = flat ? told.low - 0.5 : told.low;
    const high = flat ? told.high + 0.5 : told.high;
    const pad = (high - low) * 0.04;
    const ink = cssColor("--ink");
    const edge = (name) => ({ label: name.replace("p", "") + "th", color: color(1), dash: [4, 3], xs: told.steps, ys: told[name] });
    return {
      cells: { xs: told.steps, low, high, counts: told.counts },
      range: [low - pad, high + pad],
      lines: [edge("p10"), { label: "median", color: ink, xs: told.steps, ys: told.p50 }, edge("p90")],
      format: number,
    };
  });
}
