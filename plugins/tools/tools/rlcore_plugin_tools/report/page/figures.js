// What the data says, in the form that the sections draw: groups of runs, their colours and names, values by step.

import { number } from "./format.js";

export const palette = ["--blue", "--orange", "--green", "--purple", "--red", "--sky", "--brown", "--grey"];

export function color(place) {
  return cssColor(palette[place % palette.length]);
}

export function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A group is runs that differ by their seed alone, most often a single run.
export function groupsOf(figures) {
  const differing = figures.differences.filter((path) => path !== "run.seed");
  return figures.groups.map((members, place) => {
    const runs = members.map((member) => figures.runs[member]);
    const told = differing.map((path) => `${path.split(".").pop()} ${brief(runs[0].config[path])}`);
    const label = figures.groups.length > 1 && told.length && told.length <= 3 ? told.join(", ") : runs[0].name;
    return { place, members, runs, label: members.length > 1 ? `${label} · ${members.length} seeds` : label };
  });
}

function brief(value) {
  if (value === undefined) return "unset";
  if (typeof value === "number") return number(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 32 ? `…${text.slice(-31)}` : text;
}

export function names(figures) {
  return [...new Set(figures.runs.flatMap((run) => Object.keys(run.series)))];
}

export function tasks(figures) {
  const found = new Set();
  for (const run of figures.runs) {
    for (const row of run.evaluations) {
      for (const key of Object.keys(row)) if (key.startsWith("eval/")) found.add(key.split("/")[1]);
    }
  }
  return [...found];
}

export function unitOf(figures, name) {
  return figures.metrics[name]?.unit ?? "";
}

// Where each update is on the chosen axis.
export function axisOf(run, axis) {
  const column = { seconds: "seconds", tokens: "response_tokens" }[axis];
  if (!column || !run.series[column]) return run.steps;
  let sum = 0;
  const factor = axis === "seconds" ? 1 / 60 : 1;
  return run.series[column].map((value) => (sum += (value ?? 0) * factor));
}

// An evaluation of step n stands where update n stands; step 0 at the beginning.
export function placeOf(run, axis, step) {
  if (axis === "step") return step;
  const xs = axisOf(run, axis);
  let found = 0;
  for (let place = 0; place < run.steps.length && run.steps[place] <= step; place++) found = xs[place];
  return found;
}

export function total(values) {
  return (values ?? []).reduce((sum, value) => sum + (value ?? 0), 0);
}

export function last(values) {
  for (let place = (values?.length ?? 0) - 1; place >= 0; place--) if (values[place] !== null) return values[place];
  return null;
}
