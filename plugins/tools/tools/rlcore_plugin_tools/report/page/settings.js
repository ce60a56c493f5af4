// The configuration: every value and who set it; of several runs beside each other, what differs first.

import { h, fill, section, visible } from "./dom.js";
import { count } from "./format.js";

export function settings(state) {
  const view = { state, wanted: null, text: "" };
  const table = h("div.card.scroll", { tabindex: "0", role: "region", "aria-label": "Settings" });
  const controls = h("div.controls", {});
  const node = section("configuration", "Configuration", h("details.fold", { open: window.innerWidth > 560 }, h("summary", {}, "Settings"), controls, table));
  const update = () => {
    const { runs } = state.figures;
    view.wanted ??= runs.length > 1 ? "differences" : Object.keys(runs[0].origins).length ? "typed" : "all";
    choices(view, controls, update);
    drawSettings(view, table);
  };
  update();
  return { node, update };
}

function choices(view, controls, update) {
  const { runs } = view.state.figures;
  const known = runs.some((run) => Object.keys(run.origins).length);
  const offered = [runs.length > 1 && ["differences", "What differs"], known && ["typed", "Set by you"], known && ["derived", "By recipe or derived"], ["all", "All"]].filter(Boolean);
  const now = JSON.stringify([offered, view.wanted]);
  if (view.choicesFor === now) return;
  view.choicesFor = now;
  const search = h("input", { type: "search", value: view.text, placeholder: "part of a name", oninput: () => {
    view.text = search.value;
    update();
  } });
  fill(controls, h("div.segments", { role: "group", "aria-label": "Which settings" }, offered.map(([key, text]) => h("button", { type: "button", "aria-pressed": view.wanted === key ? "true" : "false", onclick: () => {
    view.wanted = key;
    update();
  } }, text))), h("label.field", {}, h("span", {}, "Find"), search));
}

function drawSettings(view, table) {
  const { runs, differences } = view.state.figures;
  const paths = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const wanted = (path) => view.wanted === "all" || (view.wanted === "differences" ? differences.includes(path) : runs.some((run) => setBy(run, path) === view.wanted));
  const chosen = paths.filter((path) => path.toLowerCase().includes(view.text.toLowerCase()) && wanted(path));
  if (!chosen.length) return void fill(table, h("p.empty", {}, view.wanted === "differences" && !view.text ? "These runs have the same settings." : "No setting is like this."));
  const columns = runs.length > 1 ? runs.map((run) => run.name) : ["Value"];
  fill(table, h("table.settings", {},
    h("caption", {}, count(chosen.length, "setting")),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Setting"), columns.map((name) => h("th", { scope: "col" }, h("bdi", {}, name))), runs.length === 1 && h("th", { scope: "col" }, "Set by"))),
    h("tbody", {}, chosen.map((path) => h(runs.length > 1 && differences.includes(path) ? "tr.differs" : "tr", {},
      h("th", { scope: "row" }, h("code", {}, path)),
      runs.map((run) => h("td", {}, h("code", {}, shownValue(run.config[path])))),
      runs.length === 1 && h("td.quiet", {}, h("bdi", {}, originOf(runs[0], path) ?? "")))))));
}

// Without an origin of its own, a value has that of its table. Origins write rewards.0.weight, settings rewards[0].weight.
function originOf(run, path) {
  for (let part = path.replace(/\[(\d+)\]/g, ".$1"); part; part = part.slice(0, Math.max(part.lastIndexOf("."), 0))) if (part in run.origins) return run.origins[part];
  return undefined;
}

// "typed": in a file, as a flag or from Python. "derived": by a recipe, or resolved from others. "default": neither.
function setBy(run, path) {
  const origin = originOf(run, path) ?? "default";
  if (origin === "default" || origin === "default of the plugin") return "default";
  return /^(auto: |recipe )/.test(origin) ? "derived" : "typed";
}

function shownValue(value) {
  if (value === undefined) return "–";
  return visible(typeof value === "string" ? value || "\"\"" : JSON.stringify(value));
}
