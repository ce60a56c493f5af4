// Where the seconds of trainers and producers went: over the steps, and in all.

import { h, fill, section } from "./dom.js";
import { duration, percent, words, count } from "./format.js";
import { cssColor } from "./figures.js";
import { byRun } from "./spreads.js";
import { chartCard, forget, redrawAll } from "./chart.js";

const categories = {
  compute: ["--blue", "training, generating, evaluating"],
  waiting_for_data: ["--orange", "no batch yet, or nothing left to sample"],
  waiting_for_weights: ["--purple", "handing out, awaiting or loading weights"],
  blocked_by_rewards: ["--red", "waiting for verdicts"],
  blocked_by_environments: ["--green", "waiting for episodes alone"],
  blocked_by_tools: ["--teal", "the same, for tools that episodes use"],
  back_pressure: ["--sky", "may not run further ahead"],
  wasted: ["--brown", "generating what was thrown away"],
  other: ["--grey", "logging, saving, nothing at all"],
};

export function times(state) {
  const body = h("div", {});
  const node = section("time", "Time", body);
  let made = [];
  let known = "";
  function update() {
    const there = state.figures.runs.map((run, place) => [run, place]).filter(([run]) => Object.keys(run.times.roles).length);
    const now = JSON.stringify(there.map(([run, place]) => [place, Object.keys(run.times.roles)]));
    if (now !== known) {
      forget(made);
      made = there.flatMap(([run, place]) => Object.keys(run.times.roles).sort().reverse().map((role) => timeChart(state, place, role)));
      known = now;
      fill(body, made.length ? [h("div.bars", {}), byRun(state, there.map(([, place]) => place), made)] : h("p.empty.card", {}, "No times have been written yet."));
    } else redrawAll(made);
    const bars = body.querySelector(".bars");
    if (bars) fill(bars, there.map(([run]) => totals(state, run)));
  }
  update();
  return { node, update };
}

function totals(state, run) {
  const roles = Object.keys(run.times.roles).sort().reverse();
  const used = Object.keys(categories).filter((name) => roles.some((role) => run.times.roles[role].total[name] > 0));
  return h("div.card", {}, h("h3", {}, state.figures.runs.length > 1 ? h("bdi", {}, run.name) : "In all"),
    roles.map((role) => bar(role, run.times.roles[role])),
    h("ul.key-list", {}, used.map((name) => h("li", {}, h("i.swatch", { style: { background: `var(${categories[name][0]})` } }), h("span", {}, words(name)), h("span.quiet", {}, categories[name][1])))));
}

function bar(role, { total, workers }) {
  const sum = Object.values(total).reduce((one, other) => one + other, 0);
  const parts = Object.keys(categories).filter((name) => total[name] > 0);
  const told = parts.map((name) => `${words(name)} ${percent(total[name] / sum, 0)} (${duration(total[name])})`).join(", ");
  return h("div.share", {}, h("div.share-head", {}, h("span", {}, count(workers, role)), h("span.quiet", {}, `${duration(sum)} together · ${percent((total.compute ?? 0) / sum, 0)} compute`)),
    h("div.stack", { role: "img", "aria-label": `${role}: ${told}`, title: told }, parts.map((name) =>
      h("span", { style: { "flex-grow": total[name] / sum, background: `var(${categories[name][0]})` } }, total[name] / sum > 0.09 ? h("b", {}, percent(total[name] / sum, 0)) : null))));
}

function timeChart(state, place, role) {
  const chart = chartCard(`Seconds an update, ${role}`, "seconds by category since the last update, of all workers of the role", () => {
    const { steps, roles } = state.figures.runs[place].times;
    const of = roles[role]?.steps ?? {};
    return {
      stacked: true,
      lines: Object.keys(categories).filter((name) => of[name]?.some((spent) => spent > 0)).map((name) => ({ label: words(name), color: cssColor(categories[name][0]), xs: steps, ys: of[name] })),
      format: duration,
    };
  });
  chart.run = place;
  return chart;
}
