// Who the run is, how it stands, and what came of it.

import { h, fill, remember } from "./dom.js";
import { number, percent, duration, count, when } from "./format.js";
import { groupsOf, palette, tasks, total, last } from "./figures.js";
import { live } from "./load.js";
import { meanOf } from "./smooth.js";

const states = {
  finished: "Finished",
  running: "Running",
  interrupted: "Interrupted",
  ended: "Ended early",
};

export function headerOf(figures, themed) {
  document.title = `${titleOf(figures)} · rlcore`;
  const one = figures.runs.length === 1 ? figures.runs[0] : null;
  return h("header.top", {},
    h("div.bar", {}, h("span.brand", {}, "rlcore"), live ? h("span.live", { id: "connection", role: "status" }) : h("span.quiet", {}, `report of ${when(figures.made)}`), themeButton(themed)),
    h("div.title", {}, h("h1", {}, titleOf(figures)), one && statePill(one)),
    one ? h("p.facts", {}, factsOf(one).map(([name, value]) => h("span", {}, h("span.key", {}, name), " ", h("bdi", {}, value)))) : null,
    figures.runs.flatMap((run) => banners(run, figures.runs.length > 1)),
    one ? tiles(figures, one) : runTable(figures),
  );
}

function titleOf(figures) {
  return figures.runs.length === 1 ? figures.runs[0].name : count(figures.runs.length, "run");
}

function statePill(run) {
  return h(`span.pill.${run.state}`, {}, states[run.state] ?? run.state);
}

function factsOf(run) {
  const config = run.config;
  return [
    ["algorithm", config["algorithm.name"]],
    ["model", lastPart(config["model.model"])],
    ["trainer", counted(config["training.name"], config["training.num_trainers"])],
    ["inference", counted(config["inference.name"], config["inference.num_inferencer"])],
    ["runtime", config["run.runtime"]],
    ["seed", config["run.seed"]],
  ].filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => [name, String(value)]);
}

function lastPart(path) {
  return typeof path === "string" ? path.split("/").filter(Boolean).slice(path.startsWith("/") ? -1 : -2).join("/") : path;
}

function counted(name, many) {
  return name && many > 1 ? `${name} × ${many}` : name;
}

// --- where it stands ----------------------------------------------------------------------------------------------------

function banners(run, several) {
  const name = several ? `${run.name}: ` : "";
  const found = [];
  const sentence = endOf(run);
  if (sentence) found.push(h(`p.banner.${run.state}`, { role: "note" }, h("strong", {}, name + states[run.state]), " ", sentence));
  for (const remark of run.summary.remarks ?? []) found.push(h("p.banner", { role: "note" }, name, String(remark)));
  for (const problem of run.problems) found.push(h("p.banner.ended", { role: "note" }, name, problem));
  return found;
}

function endOf(run) {
  const step = last(run.steps);
  const most = run.config["run.max_steps"];
  const of = most ? ` of ${most}` : "";
  if (run.state === "finished") return step === null ? "It made no update." : "";
  if (step === null) return run.state === "running" ? "No update has been made yet." : "It ended before its first update: there is nothing to draw.";
  if (run.state === "running") return `${count(step, "update")}${of} so far; the last was written at ${when(run.last_written)}.`;
  const saved = last(run.checkpoints);
  const how = run.state === "interrupted" ? "It was told to stop" : "It died or was killed";
  const lost = saved !== null && saved < step ? `, so a resumed run makes ${count(step - saved, "update")} again` : "";
  const point = saved === null ? "There is no checkpoint to go on from." : [`The last checkpoint is of step ${saved}${lost}. To go on: `, h("code", {}, `rlcore resume ${run.folder}`)];
  return [`${how} after step ${step}${of}; the last line of its metrics was written at ${when(run.last_written)}. `, point];
}

// --- headline figures ---------------------------------------------------------------------------------------------------

function accuracyOf(run, task) {
  const name = `eval/${task}`;
  const rows = run.evaluations.filter((row) => row[name] !== null && row[name] !== undefined);
  if (!rows.length) return null;
  const told = (row) => ({ step: row.step, value: row[name], low: row[`${name}/low`] ?? null, high: row[`${name}/high`] ?? null });
  const best = rows.reduce((one, other) => (other[name] >= one[name] ? other : one));
  return { before: told(rows[0]), after: told(rows[rows.length - 1]), best: told(best), count: rows.length };
}

export function between({ low, high }) {
  return low === null || high === null ? "" : `${(100 * low).toFixed(1)}–${(100 * high).toFixed(1)} %`;
}

function tiles(figures, run) {
  const found = tasks(figures).slice(0, 3).map((task) => [task, accuracyOf(run, task)]).filter(([, told]) => told).map(([task, told]) =>
    tile(`Accuracy on ${task}`, [told.count > 1 && [percent(told.before.value), arrow()], percent(told.after.value)],
      [between(told.after) && `95 %: ${between(told.after)}`, told.count > 1 && `best ${percent(told.best.value)} at step ${told.best.step}`].filter(Boolean).join(" · "), true));
  const reward = run.series["reward/mean"];
  if (reward) found.push(tile("Mean reward", [number(reward.find((value) => value !== null)), arrow(), number(last(reward))], `best ${number(Math.max(...reward.filter((value) => value !== null)))}`, !found.length));
  const most = run.config["run.max_steps"];
  found.push(tile("Updates", number(last(run.steps) ?? 0), most ? `of ${number(most)}` : ""));
  const seconds = secondsOf(run);
  if (run.steps.length) found.push(tile("Wall time", duration(seconds), `${duration(seconds / run.steps.length)} an update`));
  const speed = speedOf(run);
  if (speed) found.push(tile("Throughput", number(speed), `tokens/s${run.series.mfu ? ` · MFU ${percent(last(run.series.mfu))}` : ""}`));
  return h("div.tiles", {}, found);
}

function arrow() {
  return h("span.arrow", {}, h("span", { "aria-hidden": "true" }, " → "), h("span.unseen", {}, " to "));
}

function tile(name, value, below, wide) {
  return h(`div.tile${wide ? ".wide" : ""}`, {}, h("span.key", {}, name), h("span.figure", {}, value), h("span.below", {}, below));
}

function secondsOf(run) {
  return total(run.series.seconds) || (run.summary.train_seconds ?? 0);
}

function speedOf(run) {
  const seconds = total(run.series.seconds);
  return run.summary.tokens_per_second ?? (seconds && run.series.response_tokens ? total(run.series.response_tokens) / seconds : null);
}

function runTable(figures) {
  const evaluated = tasks(figures);
  const rows = groupsOf(figures).map((group) => {
    const told = evaluated.map((task) => group.runs.map((run) => accuracyOf(run, task)).filter(Boolean));
    return h("tr", {},
      h("th", { scope: "row" }, h("i.swatch", { style: { background: `var(${palette[group.place % palette.length]})` } }), h("bdi", {}, group.label)),
      h("td", {}, [...new Set(group.runs.map((run) => run.state))].map((state) => h(`span.pill.${state}`, {}, states[state] ?? state))),
      h("td.num", {}, [...new Set(group.runs.map((run) => last(run.steps) ?? 0))].join(", ")),
      told.map((of) => [h("td.num", {}, of.length ? percent(meanOf(of.map((one) => one.before.value)).mean) : "–"), h("td.num", {}, over(of, "after")), h("td.num", {}, over(of, "best"))]),
      h("td.num", {}, number(meanOf(group.runs.map((run) => last(run.series["reward/mean"]))).mean)),
      h("td.num", {}, duration(meanOf(group.runs.map(secondsOf)).mean)),
      h("td.num", {}, number(meanOf(group.runs.map(speedOf)).mean)));
  });
  const head = ["Run", "State", "Updates", ...evaluated.flatMap((task) => [`${task}, before`, "after", "best"]), "Last reward", "Wall time", "Tokens/s"];
  const seeds = figures.groups.some((members) => members.length > 1);
  return h("div.card.scroll", { tabindex: "0", role: "region", "aria-label": "Runs" },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((name, place) => h(place > 1 ? "th.num" : "th", { scope: "col" }, name)))), h("tbody", {}, rows)),
    seeds && h("p.note", {}, "Runs that differ by nothing but their seed are one line: means over seeds, ± half the 95 % interval (Student's t)."));
}

function over(told, which) {
  if (!told.length) return "–";
  const { mean, high } = meanOf(told.map((one) => one[which].value));
  if (told.length > 1) return `${percent(mean)} ± ${(100 * (high - mean)).toFixed(1)}`;
  return [percent(mean), between(told[0][which]) && h("span.below", {}, between(told[0][which]))];
}

// --- light and dark -----------------------------------------------------------------------------------------------------

const themes = { system: "Light or dark: as the system", light: "Light", dark: "Dark" };

export function applyTheme() {
  const chosen = remember("theme");
  if (chosen in themes && chosen !== "system") document.documentElement.dataset.theme = chosen;
}

function themeButton(themed) {
  const order = Object.keys(themes);
  const button = h("button.icon", { type: "button", onclick: turn });
  function show() {
    const now = document.documentElement.dataset.theme ?? "system";
    fill(button, { system: "◐", light: "○", dark: "●" }[now]);
    button.setAttribute("aria-label", `Theme: ${themes[now]}. Change`);
    button.title = themes[now];
  }
  function turn() {
    const now = document.documentElement.dataset.theme ?? "system";
    const next = order[(order.indexOf(now) + 1) % order.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    remember("theme", next);
    show();
    themed();
  }
  show();
  return button;
}
