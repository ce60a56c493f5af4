// Builds nodes. Text of a run becomes text nodes, never markup: nothing here or elsewhere parses HTML.

export function h(kind, props, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, set] of Object.entries(value)) node.style.setProperty(name, set);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  return fill(node, ...children);
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Control characters would vanish, and those that turn the direction of writing would rearrange what stands beside them: both are shown by
// their number.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text) {
  return text.replace(unseen, (character) => `\u27e8U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

export function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

export function select(label, options, onchange, props) {
  const node = h("select", { ...props, onchange: () => onchange(node.value) }, options.map(([value, text]) => h("option", { value }, text)));
  return h("label.field", {}, h("span", {}, label), node);
}

export function remember(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(`rlcore-report-${key}`);
    localStorage.setItem(`rlcore-report-${key}`, value);
  } catch {
    // a file that is opened from a disk may have no storage: the choice holds for this visit
  }
  return null;
}
