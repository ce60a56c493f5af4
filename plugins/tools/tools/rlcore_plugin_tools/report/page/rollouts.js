// The browser of rollouts: filters above, list and detail below.

import { h, fill, section, select, visible } from "./dom.js";
import { count } from "./format.js";
import { filtered, haystack, keyOf, orders } from "./rollout_filter.js";
import { rolloutList, showRows, bringIntoSight } from "./rollout_list.js";
import { rolloutDetail } from "./rollout_detail.js";

const nothing = { run: "", source: "", outcome: "", kind: "", fromStep: null, toStep: null, fromReward: null, toReward: null, text: "", order: "" };

export function rollouts(state) {
  const browser = { state, wanted: { ...nothing }, rows: [], chosen: -1, key: null };
  browser.list = rolloutList((place) => choose(browser, place));
  browser.filters = h("div.controls.filters", { role: "search", "aria-label": "Filter rollouts" });
  browser.told = h("p.note", { role: "status" });
  browser.bounds = h("p.note", {});
  browser.detail = h("div.detail-body", { tabindex: "-1" });
  browser.place = h("span.quiet", { role: "status" });
  const step = (by, label, sign) => h("button", { type: "button", "aria-label": label, title: label, onclick: () => move(browser, by) }, sign);
  const detail = h("article.card.detail", { "aria-label": "The chosen rollout" },
    h("div.detail-bar", {}, step(-1, "Previous rollout (k)", "← Previous"), step(1, "Next rollout (j)", "Next →"), browser.place), browser.detail);
  const body = h("div.browser", {}, h("div.card.list-card", {}, browser.told, browser.list.node), detail);
  browser.empty = h("p.empty.card", {});
  browser.body = h("div", {}, browser.bounds, browser.filters, body);
  const node = section("rollouts", "Rollouts", browser.empty, browser.body);
  keys(browser, node);
  const update = () => refresh(browser);
  update();
  return { node, update };
}

function refresh(browser) {
  const data = browser.state.rollouts;
  const there = Boolean(data?.count);
  browser.body.hidden = !there;
  browser.empty.hidden = there;
  browser.empty.textContent = data ? "There are no rollouts to show: none has been logged yet, or log.rollout_interval is 0." : "Unpacking the rollouts …";
  if (!there) return;
  fill(browser.bounds, bounds(data));
  filters(browser);
  search(browser, true);
  setTimeout(() => haystack(data), 50); // so that the first letter of a search finds it ready
}

function bounds(data) {
  const sum = (name) => data.told.reduce((one, other) => one + other[name], 0);
  const part = (shown, all, what) => (shown < all ? `${shown.toLocaleString("en")} of ${count(all, what)}, evenly over the steps` : count(shown, what));
  const cut = Object.keys(data.sparse.cut).length;
  return [`${part(sum("rollouts"), sum("of_rollouts"), "rollout")}; ${part(sum("answers"), sum("of_answers"), "answer")} of evaluations. `, cut ? `The middle of ${count(cut, "text")} longer than ${count(data.characters, "character")} is left out. ` : "", data.problems.join(" "), h("span.keys", {}, h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " next, previous · ", h("kbd", {}, "/"), " search")];
}

// --- filters ------------------------------------------------------------------------------------------------------------

function filters(browser) {
  const { wanted } = browser;
  const { columns, sources } = browser.state.rollouts;
  const runs = browser.state.figures.runs;
  const now = JSON.stringify([sources, [...new Set(columns.outcome)], [...new Set(columns.kind)], runs.map((run) => run.name)]);
  if (now === browser.filtersFor) return;
  browser.filtersFor = now;
  const set = (name) => (value) => {
    wanted[name] = value;
    search(browser);
  };
  const input = h("input", { id: "search", type: "search", placeholder: "text, prompt, answer, reason", value: wanted.text, oninput: () => set("text")(input.value), autocomplete: "off", spellcheck: "false" });
  const choice = (label, name, values, show = (value) => value) => values.length > 1 && select(label, [["", "all"], ...values.map((value) => [String(value), visible(String(show(value)))])], set(name), { "data-filter": name });
  fill(browser.filters,
    h("label.field.grow", {}, h("span", {}, "Search"), input),
    choice("Run", "run", runs.map((_, place) => place), (place) => runs[place].name),
    choice("Source", "source", sources.map((_, place) => place), (place) => sources[place]),
    choice("Outcome", "outcome", [...new Set(columns.outcome)].sort()),
    choice("Kind", "kind", [...new Set(columns.kind)].filter(Boolean).sort()),
    range("Step", "fromStep", "toStep", set),
    range("Reward", "fromReward", "toReward", set),
    select("Order", orders, set("order"), { "data-filter": "order" }));
}

function range(label, from, to, set) {
  const bound = (name, text) => {
    const input = h("input", { type: "number", step: "any", placeholder: text, "aria-label": `${label}, ${text}`, "data-filter": name, oninput: () => set(name)(input.value === "" ? null : Number(input.value)) });
    return input;
  };
  return h("div.field", { role: "group", "aria-label": label }, h("span", {}, label), h("span.pair", {}, bound(from, "from"), bound(to, "to")));
}

function search(browser, stay) {
  const data = browser.state.rollouts;
  browser.rows = filtered(data, browser.wanted);
  browser.told.textContent = browser.rows.length === data.count ? count(data.count, "row") : `${count(browser.rows.length, "row")} of ${data.count.toLocaleString("en")}`;
  if (!stay) browser.list.node.scrollTop = 0;
  const again = browser.key === null ? -1 : browser.rows.findIndex((row) => keyOf(data, row) === browser.key);
  showRows(browser.list, data, browser.rows, again);
  if (again >= 0) {
    browser.chosen = again;
    tellPlace(browser);
    if (stay && browser.shownFor !== data) show(browser, browser.rows[again]);
  } else choose(browser, browser.rows.length ? 0 : -1, !stay);
}

// --- the chosen one -----------------------------------------------------------------------------------------------------

function choose(browser, place) {
  browser.chosen = place;
  if (place < 0) {
    browser.key = null;
    browser.shownFor = null;
    fill(browser.detail, h("p.empty", {}, "No rollout is like this."));
    tellPlace(browser);
    return;
  }
  bringIntoSight(browser.list, place);
  show(browser, browser.rows[place]);
}

function show(browser, row) {
  const data = browser.state.rollouts;
  const key = keyOf(data, row);
  const same = key === browser.key;
  browser.key = key;
  browser.shownFor = data;
  const go = (other) => {
    const place = browser.rows.indexOf(other);
    if (place >= 0) choose(browser, place);
    else {
      browser.chosen = -1;
      showRows(browser.list, data, browser.rows, -1);
      show(browser, other);
    }
  };
  const top = browser.detail.scrollTop;
  fill(browser.detail, rolloutDetail(data, row, browser.state, go));
  browser.detail.scrollTop = same ? top : 0;
  tellPlace(browser);
}

function tellPlace(browser) {
  browser.place.textContent = browser.chosen >= 0 ? `${(browser.chosen + 1).toLocaleString("en")} of ${browser.rows.length.toLocaleString("en")}` : "not in the list";
}

function move(browser, by) {
  if (!browser.rows.length) return;
  choose(browser, Math.min(browser.rows.length - 1, Math.max(0, browser.chosen + by)));
}

// --- keys ---------------------------------------------------------------------------------------------------------------

function keys(browser, node) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || browser.body.hidden) return;
    const typing = event.target.closest?.("input:not([type=range]), select, textarea");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    const inList = event.target === browser.list.node;
    const by = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 } : {}) }[event.key];
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("search")?.focus();
    } else if (by !== undefined) {
      event.preventDefault();
      const { top, bottom } = node.getBoundingClientRect();
      if (top > innerHeight * 0.8 || bottom < 0) node.scrollIntoView();
      move(browser, by);
    }
  });
}
