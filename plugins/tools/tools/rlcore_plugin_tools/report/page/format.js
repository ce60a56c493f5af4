// Numbers as a reader wants them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value < 0) return `−${number(-value, digits)}`;
  if (value === 0) return "0";
  if (value >= 1e6) return `${trim((value / 1e6).toPrecision(digits))} M`;
  if (value >= 1e4) return whole.format(value);
  if (value < 1e-3) return value.toExponential(1).replace("e-", "e−");
  if (Number.isInteger(value)) return String(value);
  return trim(value.toPrecision(value >= 1000 ? 4 : digits));
}

function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${trim(seconds.toFixed(1))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (minutes < 60 * 48) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.round((minutes % 1440) / 60)} h`;
}

export function count(value, one, several = `${one}s`) {
  return `${whole.format(value)} ${value === 1 ? one : several}`;
}

export function byUnit(unit) {
  if (unit === "share") return (value) => percent(value, Math.abs(value) < 0.0995 && value !== 0 ? 2 : 1);
  if (unit === "s") return duration;
  return number;
}

export function when(iso) {
  return iso ? iso.slice(0, 16).replace("T", " ") : "–";
}

export function words(name) {
  return name.replaceAll("_", " ");
}
