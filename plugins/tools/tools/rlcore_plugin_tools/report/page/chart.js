// One chart in a card, drawn by uPlot. What it shows is `spec()`, asked for at each drawing, so that data, theme and width may change.
//
// What is read out of a line is `told`, the raw values, where it has them.
// spec: {lines: [{label, color, dash, faint, xs, ys, told, low, high}], format, xLabel, marks, stacked, cells, range}

import { h, fill } from "./dom.js";
import { number } from "./format.js";
import { cssColor } from "./figures.js";

const height = 200;
const sync = uPlot.sync("rlcore");
const drawn = new Set();
let seen = null;

export function chartCard(title, note, spec) {
  const readout = h("dl.readout", {});
  const place = h("div.plot", {});
  const node = h("figure.card.chart", { role: "group" }, h("figcaption", {}, h("h3", { title: note }, title), readout), place);
  const chart = { node, place, readout, spec, title, plot: null, near: false };
  drawn.add(chart);
  seen ??= new IntersectionObserver(notice, { rootMargin: "600px" });
  seen.observe(node);
  return chart;
}

function notice(entries) {
  for (const entry of entries) {
    const chart = [...drawn].find((one) => one.node === entry.target);
    if (!chart) continue;
    chart.near = entry.isIntersecting;
    if (chart.near && (!chart.plot || chart.stale)) draw(chart);
  }
}

export function forget(charts) {
  for (const chart of charts) {
    chart.plot?.destroy();
    seen?.unobserve(chart.node);
    drawn.delete(chart);
  }
}

export function redrawAll(charts = drawn) {
  for (const chart of charts) {
    if (chart.near) draw(chart);
    else chart.stale = true;
  }
}

function draw(chart) {
  const spec = chart.spec();
  const { data, series, bands, labels } = tableOf(spec);
  const zoom = chart.plot && chart.zoomed ? { ...chart.plot.scales.x } : null;
  chart.plot?.destroy();
  chart.stale = false;
  chart.node.setAttribute("aria-label", sentence(chart, spec));
  if (!data[0].length) {
    chart.plot = null;
    fill(chart.place, h("p.empty", {}, "no values yet"));
    return;
  }
  const tell = () => readOut(chart, spec, labels);
  const options = {
    width: Math.max(160, chart.place.clientWidth || chart.node.clientWidth - 32),
    height,
    padding: [8, 14, 0, 0],
    legend: { show: false },
    scales: { x: { time: false, range: xRange }, y: { range: (plot, low, high) => yRange(spec, ...held(spec, low, high)) } },
    axes: [axis(number, 22, 60), axis((value) => shortened((spec.format ?? number)(value)), 50, 34)],
    cursor: { sync: { key: sync.key }, y: false, points: { size: 6 }, drag: { x: true, y: false } },
    series,
    bands,
    hooks: { drawClear: [(plot) => spec.cells && drawCells(plot, spec.cells)], draw: [(plot) => drawMarks(plot, spec.marks ?? [])], setCursor: [tell], setScale: [(plot, key) => key === "x" && (chart.zoomed = isZoomed(plot))] },
  };
  fill(chart.place);
  chart.plot = new uPlot(options, data, chart.place);
  if (zoom) chart.plot.setScale("x", { min: zoom.min, max: zoom.max });
  tell();
}

function isZoomed(plot) {
  const xs = plot.data[0];
  return plot.scales.x.min > xs[0] + 1e-9 || plot.scales.x.max < xs[xs.length - 1] - 1e-9;
}

function xRange(plot, low, high) {
  return low === high ? [low - 1, high + 1] : [low, high];
}

function yRange(spec, low, high) {
  if (spec.range) return spec.range;
  if (low === null || high === null || !Number.isFinite(low)) return [0, 1];
  if (spec.stacked) return [0, high * 1.02 || 1];
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  const floor = low >= 0 && low - pad < 0 ? 0 : low - pad;
  return [floor, high + pad];
}

// The interval of two seeds may be much wider than what they did, and must not make the lines flat.
function held(spec, low, high) {
  const values = !spec.lines.some((line) => line.interval) ? [] : spec.lines.flatMap((line) => line.ys.filter((value) => value !== null && value !== undefined));
  if (!values.length || low === null) return [low, high];
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  const room = most - least;
  return room ? [Math.max(low, least - room), Math.min(high, most + room)] : [low, high];
}

function axis(format, size, space) {
  const grid = { stroke: cssColor("--grid"), width: 1 };
  return {
    stroke: cssColor("--muted"), font: "11px system-ui, sans-serif", size, space, gap: 4, grid, ticks: { show: false },
    values: (plot, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))),
  };
}

function shortened(text) {
  return text.replace(/(\.\d*?)0+(?= %)/, "$1").replace(". %", " %");
}

// uPlot wants one column of x for all lines.
function tableOf(spec) {
  const lines = spec.lines.filter((line) => line.ys.some((value) => value !== null && value !== undefined));
  const xs = [...new Set(lines.flatMap((line) => line.xs))].sort((one, other) => one - other);
  const places = new Map(xs.map((x, place) => [x, place]));
  const column = (line, values) => {
    const found = new Array(xs.length).fill(null);
    line.xs.forEach((x, place) => (found[places.get(x)] = values[place] ?? null));
    return found;
  };
  const data = [xs];
  const series = [{}];
  const bands = [];
  const labels = [];
  const sums = new Array(xs.length).fill(0);
  for (const line of lines) {
    let values = column(line, line.ys);
    if (spec.stacked) {
      const below = [...sums];
      values = values.map((value, place) => (sums[place] += value ?? 0));
      data.push(below);
      series.push({ points: { show: false }, width: 0, stroke: "transparent" });
      bands.push({ series: [data.length, data.length - 1], fill: line.color });
    } else if (line.low) {
      data.push(column(line, line.low), column(line, line.high));
      for (const edge of [0, 1]) series.push({ points: { show: false }, width: 0, stroke: "transparent", spanGaps: true });
      bands.push({ series: [data.length - 1, data.length - 2], fill: `${line.color}2e` });
    }
    const sparse = line.xs.length <= 15;
    labels.push(line);
    data.push(values);
    series.push({
      stroke: line.faint ? `${line.color}55` : line.color, width: spec.stacked ? 0 : line.faint ? 1 : 1.75, dash: line.dash, spanGaps: true,
      points: { show: !spec.stacked && !line.faint && sparse, size: 4, fill: line.color },
    });
  }
  return { data, series, bands, labels: labels.filter((line) => !line.faint) };
}

function readOut(chart, spec, labels) {
  const plot = chart.plot;
  const place = plot?.cursor?.idx ?? null;
  const format = spec.format ?? number;
  const rows = labels.map((line) => {
    const ys = line.told ?? line.ys;
    const at = place === null || !plot ? ys.length - 1 : line.xs.findLastIndex((x) => x <= plot.data[0][place]);
    const value = nearest(ys, at);
    return h("div", {}, labels.length > 1 && [h("i", { style: { background: line.color } }), h("dt", {}, line.label)], h("dd", {}, format(value)));
  });
  const where = place !== null && plot ? h("div.where", {}, h("dt", {}, `${spec.xLabel ?? "step"} ${number(plot.data[0][place])}`)) : null;
  fill(chart.readout, where, rows.slice(0, 8), rows.length > 8 && h("div", {}, h("dt", {}, `and ${rows.length - 8} more`)));
}

function nearest(values, place) {
  for (let back = place; back >= 0; back--) if (values[back] !== null && values[back] !== undefined) return values[back];
  return null;
}

function sentence(chart, spec) {
  const format = spec.format ?? number;
  const told = spec.lines.filter((line) => !line.faint && line.ys.length).map((line) => {
    const there = line.ys.filter((value) => value !== null && value !== undefined);
    return there.length ? `${line.label}: from ${format(there[0])} to ${format(there[there.length - 1])}` : "";
  });
  return `${chart.title}. ${told.filter(Boolean).join("; ")}`;
}

// Where a run was resumed.
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = cssColor("--muted");
  ctx.setLineDash([2, 4]);
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

// Counts by step and bin as shades behind the lines.
function drawCells(plot, { xs, low, high, counts }) {
  const { ctx, bbox } = plot;
  const shade = cssColor("--blue");
  const gap = xs.length > 1 ? (xs[xs.length - 1] - xs[0]) / (xs.length - 1) : 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = shade;
  counts.forEach((column, place) => {
    const sum = column.reduce((one, other) => one + other, 0);
    const left = plot.valToPos(place ? (xs[place - 1] + xs[place]) / 2 : xs[place] - gap / 2, "x", true);
    const right = plot.valToPos(place < xs.length - 1 ? (xs[place + 1] + xs[place]) / 2 : xs[place] + gap / 2, "x", true);
    column.forEach((share, bin) => {
      if (!share) return;
      const bottom = plot.valToPos(low + ((high - low) * bin) / column.length, "y", true);
      const top = plot.valToPos(low + ((high - low) * (bin + 1)) / column.length, "y", true);
      ctx.globalAlpha = 0.06 + 0.6 * Math.sqrt(share / sum);
      ctx.fillRect(Math.round(left), Math.round(top), Math.max(1, Math.round(right) - Math.round(left)), Math.max(1, Math.round(bottom) - Math.round(top)));
    });
  });
  ctx.restore();
}

let waiting = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    for (const chart of drawn) {
      if (chart.plot && chart.place.clientWidth) chart.plot.setSize({ width: Math.max(160, chart.place.clientWidth), height });
    }
  });
});
