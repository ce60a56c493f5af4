// What a run was made of, and what went wrong in it.

import { h, fill, section, visible } from "./dom.js";
import { count, when } from "./format.js";

export function versions(state) {
  const body = h("div", {});
  const node = section("versions", "Versions", body);
  const update = () => fill(body, state.figures.runs.map((run) => versionsOf(run, state.figures.runs.length > 1)));
  update();
  return { node, update };
}

function versionsOf(run, several) {
  const { manifest } = run;
  if (!Object.keys(manifest).length) return h("p.empty.card", {}, `${several ? `${run.name}: ` : ""}the run ended before it wrote its manifest.`);
  const plain = [["Folder", run.folder], ["Command", (manifest.command ?? []).join(" ")], ["rlcore", manifest.rlcore], ["Python", manifest.python], ["Platform", manifest.platform], ["Seed", manifest.seed]];
  const resumes = manifest.resumes ?? [];
  const about = [
    h("dl.facts-grid.wide", {}, plain.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd.mono", {}, h("bdi", {}, visible(String(value))))))),
    resumes.length ? [h("h4", {}, `Resumed ${resumes.length === 1 ? "once" : `${resumes.length} times`}`), h("ul.plain", {}, resumes.map((resume) => h("li", {}, `after step ${resume.step}, ${when(resume.time)}`, changesOf(resume))))] : null,
    more(`Plugins`, manifest.plugins ?? [], ["Plugin", "Kind", "Distribution", "Version", "Code"], (plugin) => [plugin.name, plugin.kind, plugin.distribution, plugin.version, (plugin.source_sha256 || plugin.spec_sha256 || "").slice(0, 12)]),
    more("Packages", Object.entries(manifest.packages ?? {}), ["Package", "Version"], (row) => row),
    more("Data", Object.entries(manifest.data ?? {}), ["Data set", "SHA-256"], ([name, hash]) => [name, String(hash).slice(0, 24)]),
  ];
  return several ? h("details.more", {}, h("summary", {}, h("bdi", {}, run.name)), h("div.card", {}, about)) : h("div.card", {}, about);
}

function changesOf(resume) {
  const changed = Object.entries(resume.settings ?? {});
  return changed.length ? h("span.quiet", {}, ` with ${changed.map(([path, [old, now]]) => `${path} ${old} → ${now}`).join(", ")}`) : null;
}

function more(title, rows, head, cells) {
  if (!rows.length) return null;
  return h("details.more", {}, h("summary", {}, title, " ", h("span.quiet", {}, String(rows.length))), h("div.scroll", { tabindex: "0", role: "region", "aria-label": title },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map((row) => h("tr", {}, cells(row).map((cell) => h("td", {}, h("bdi", {}, visible(String(cell ?? ""))))))))))); 
}

// --- failures -----------------------------------------------------------------------------------------------------------

export function failures(state) {
  const body = h("div", {});
  const node = section("failures", "Failures", body);
  const update = () => {
    const found = state.figures.runs.flatMap((run) => [["Prompts that could not be judged", run.failures], ["Exceptions of rewards", run.reward_errors]].map(([title, told]) => list(run, title, told, state.figures.runs.length > 1)));
    fill(body, found.some(Boolean) ? found : h("p.empty.card", {}, "Every prompt was judged, and no reward raised an exception."));
  };
  update();
  return { node, update };
}

function list(run, title, { count: many, rows }, several) {
  if (!many) return null;
  return h("details.more", { open: many <= 20 }, h("summary", {}, several ? `${run.name}: ` : "", title, " ", h("span.quiet", {}, rows.length < many ? `the last ${rows.length} of ${many}` : String(many))),
    h("ul.log", {}, rows.map((row) => h("li", {}, h("dl", {}, Object.entries(row).map(([name, value]) => h("div", {}, h("dt", {}, visible(name)), h("dd", { dir: "auto" }, visible(typeof value === "string" ? value : JSON.stringify(value))))))))));
}

export function footer(state) {
  const { figures } = state;
  return h("footer", {}, `Made by rlcore ${figures.rlcore} from ${count(figures.runs.length, "run folder")}. Charts: uPlot, MIT licence.`);
}
