// Words and numbers as people read them.

export const STATES = {
  alarm: { word: "Alarm", path: "M8 1.6 15 14H1z M8 6v4 M8 11.6v.8", filled: true },
  watch: { word: "Watch", path: "M8 1.5 14.5 8 8 14.500 1.500 8z", filled: true },
  silent: { word: "Silent", path: "M3 8h10", filled: false },
  learning: { word: "Learning", path: "M8 2a6 6 0 1 1-6 6", filled: false },
  ok: { word: "OK", path: "M2.500 8.500 6.500 12.500 13.500 4", filled: false },
};

const SVG = "http://www.w3.org/2000/svg";

export function sign(health) {
  const { path, filled } = STATES[health] || STATES.ok;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "sign");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(SVG, "path");
  shape.setAttribute("d", path);
  shape.setAttribute("fill", filled && health !== "alarm" ? "currentColor" : health === "alarm" ? "none" : "none");
  shape.setAttribute("stroke", "currentColor");
  shape.setAttribute("stroke-width", "2.200");
  shape.setAttribute("stroke-linecap", "round");
  shape.setAttribute("stroke-linejoin", "round");
  svg.append(shape);
  return svg;
}

// Letters that cannot be seen, or turn others around, as their codes: nothing may pass for another name.
export function plainly(name) {
  return name.replace(/[\p{Cc}\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, (letter) => (/\s/.test(letter) && letter < "\u0080" ? " "
    : `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`));
}

// An element with text and children; never markup, whatever a feed sends.
export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  const digits = size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en-GB", { maximumFractionDigits: digits });
}

export function percent(value, digits = 0) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.01) return "< 1 %";
  if (value < 1 && value > 0.99) return "> 99 %";
  return `${(100 * value).toFixed(digits)} %`;
}

const forms = {};
function form(name, options) {
  forms[name] = forms[name] || new Intl.DateTimeFormat("en-GB", options);
  return forms[name];
}

// Times without a zone are shown as they are written; others in the zone of whoever looks.
export function time(value, kind, what = "both") {
  if (value === null || value === undefined) return "–";
  if (!isDate(kind)) return number(value);
  const zone = kind === "date and time" ? "UTC" : undefined;
  const at = new Date(value * 1000);
  const clock = form(`c${zone}`, { hour: "2-digit", minute: "2-digit", timeZone: zone });
  const seconds = form(`s${zone}`, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: zone });
  const day = form(`d${zone}`, { day: "numeric", month: "short", timeZone: zone });
  if (what === "clock") return clock.format(at);
  if (what === "seconds") return seconds.format(at);
  if (what === "day") return day.format(at);
  return `${day.format(at)}, ${(what === "exact" ? seconds : clock).format(at)}`;
}

export const isDate = (kind) => typeof kind === "string" && kind.startsWith("date and time");

export function span(seconds, kind) {
  if (!isDate(kind)) return number(seconds);
  const size = Math.abs(seconds);
  if (size < 90) return `${size < 10 ? number(size) : Math.round(size)} s`;
  if (size < 5400) return `${Math.round(size / 60)} min`;
  if (size < 129600) return `${number(Math.round(size / 360) / 10)} h`;
  return `${number(Math.round(size / 8640) / 10)} days`;
}

export function ago(wall) {
  const seconds = Date.now() / 1000 - wall;
  return seconds < 5 ? "just now" : `${span(seconds, "date and time")} ago`;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
