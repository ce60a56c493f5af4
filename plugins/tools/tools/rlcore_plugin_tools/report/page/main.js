// Puts the page together and keeps it up to date.

import { h, fill, remember } from "./dom.js";
import { embedded, follow, live } from "./load.js";
import { redrawAll } from "./chart.js";
import { applyTheme, headerOf } from "./header.js";
import { curves } from "./curves.js";
import { evaluation } from "./evaluation.js";
import { spreads } from "./spreads.js";
import { times } from "./times.js";
import { rollouts } from "./rollouts.js";
import { settings } from "./settings.js";
import { failures, footer, versions } from "./versions.js";

const parts = [["learning", "Learning", curves], ["evaluation", "Evaluation", evaluation], ["distributions", "Distributions", spreads], ["time", "Time", times], ["rollouts", "Rollouts", rollouts], ["configuration", "Configuration", settings], ["versions", "Versions", versions], ["failures", "Failures", failures]];
const state = { figures: null, rollouts: null, smoothing: Number(remember("smoothing") ?? 0.6), axis: "step" };
let shown = null;

function build() {
  const top = h("div", {});
  const sections = Object.fromEntries(parts.map(([id, , make]) => [id, make(state)]));
  const links = h("nav", { "aria-label": "Sections" }, parts.map(([id, title]) => h("a", { href: `#${id}` }, title)));
  fill(document.getElementById("page"), top, h("div.columns", {}, links, h("main", {}, parts.map(([id]) => sections[id].node), footer(state))));
  shown = { top, sections };
  markLinks(links, sections);
  header();
}

// The link of the section that is read is marked.
function markLinks(links, sections) {
  const marks = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) for (const link of links.children) link.toggleAttribute("aria-current", link.getAttribute("href") === `#${entry.target.id}`);
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const { node } of Object.values(sections)) marks.observe(node);
}

function header() {
  fill(shown.top, headerOf(state.figures, () => redrawAll()));
  tell(...connection);
}

function takeFigures(data) {
  state.figures = data;
  if (!shown) return build();
  header();
  for (const [id] of parts) if (!["rollouts", "distributions"].includes(id)) shown.sections[id].update();
}

function takeRollouts(data) {
  state.rollouts = data;
  shown.sections.rollouts.update();
  shown.sections.distributions.update();
}

let connection = [true, ""];

function tell(yes, sentence) {
  connection = [yes, sentence];
  const node = document.getElementById("connection");
  if (!node) return;
  node.classList.toggle("lost", !yes);
  const text = yes ? "live" : sentence;
  if (node.textContent !== text) node.textContent = text;
  if (!shown) fill(document.getElementById("page"), h("p.loading", {}, sentence));
}

// After two frames what was put into the page has been painted.
function painted(mark) {
  requestAnimationFrame(() => requestAnimationFrame(() => (document.documentElement.dataset[mark] = String(Math.round(performance.now())))));
}

async function start() {
  applyTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redrawAll());
  if (live) {
    await follow("figures", 2, takeFigures, tell);
    await follow("rollouts", 4, (data) => (shown ? takeRollouts(data) : false), (yes) => yes);
  } else {
    takeFigures(await embedded("figures"));
    takeRollouts(await embedded("rollouts"));
  }
  painted("ready");
}

start().catch((error) => fill(document.getElementById("page"), h("p.loading", { role: "alert" }, `This report cannot be shown (${error.message}). It needs a browser of 2023 or later.`)));
