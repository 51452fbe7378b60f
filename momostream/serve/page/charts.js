// Charts on uPlot: history with its fan, and small ones for scores. Zoom by wheel, drag or keys; pan with Shift or keys.

/* global uPlot */
import { colour, isDate, make, number, time } from "./format.js";

// The library of charts, which tiles do not need: fetched when a machine is opened.
let library = null;
export function loadCharts() {
  const loaded = (element, parent) => new Promise((done, failed) => {
    element.onload = done;
    element.onerror = () => { library = null; failed(new Error("the charts could not be loaded")); };
    parent.append(element);
  });
  library ||= Promise.all([
    loaded(make("link", { rel: "stylesheet", href: "static/uplot/uplot.css" }), document.head),
    loaded(make("script", { src: "static/uplot/uplot.js" }), document.head),
  ]);
  return library;
}

const faded = (name, share) => `color-mix(in srgb, ${colour(name)} ${share}%, transparent)`;

// Canvas cannot always parse color-mix: let the browser compute it.
const probe = document.createElement("span");
probe.hidden = true;
function paint(name, share = 100) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = share === 100 ? colour(name) : faded(name, share);
  return getComputedStyle(probe).color;
}

// Seconds between the marks of an axis of time.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 7776000, 31536000];

function axes(kind, size, form) {
  const font = '12px system-ui, "DejaVu Sans", sans-serif';
  const common = { stroke: paint("faint"), font, ticks: { show: false }, grid: { stroke: paint("line"), width: 1 } };
  let day = null;
  return [
    {
      ...common, space: 72, size: 36, grid: { show: false }, ...(isDate(kind) ? { incrs: STEPS } : {}),
      values: !isDate(kind) ? (u, splits) => splits.map(number) : (u, splits, axis, space, increment) => {
        day = null;
        return splits.map((value) => {
          const today = time(value, kind, "day");
          const clock = increment < 60 ? time(value, kind, "seconds") : time(value, kind, "clock");
          const text = today === day ? clock : increment >= 86400 ? today : `${clock}\n${today}`;
          day = today;
          return text;
        });
      },
    },
    { ...common, size, values: (u, splits) => splits.map((value) => form(value)) },
  ];
}

export class Chart {
  constructor(root, { label, height, size = 58, onCursor = null, zoom = true, range = null, form = number }) {
    this.root = root;
    this.height = height;
    this.size = size;
    this.range = range;
    this.form = form;
    this.onCursor = onCursor;
    this.zoomed = false;
    // Length of the newest part that is shown; null shows all.
    this.recent = null;
    this.plot = null;
    root.classList.add("chart");
    root.setAttribute("role", "img");
    root.setAttribute("aria-label", label);
    if (zoom) {
      root.tabIndex = 0;
      root.addEventListener("keydown", (event) => this.key(event));
      root.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    }
    this.zooms = zoom;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(root);
  }

  destroy() {
    this.watcher.disconnect();
    if (this.plot) this.plot.destroy();
  }

  // Series are described anew when they or the colours change; else only their data.
  set(kind, series, bands, data) {
    const key = JSON.stringify([kind, series, bands, document.documentElement.dataset.theme, paint("ink")]);
    this.data = data;
    if (key !== this.key_ || !this.plot) {
      this.key_ = key;
      const window_ = this.zoomed && this.plot ? { ...this.plot.scales.x } : null;
      if (this.plot) this.plot.destroy();
      this.plot = new uPlot(this.options(kind, series, bands), data, this.root);
      if (window_) this.plot.setScale("x", { min: window_.min, max: window_.max });
    } else if (this.zoomed) {
      const { min, max } = this.plot.scales.x;
      this.plot.setData(data, false);
      this.plot.setScale("x", { min, max });
    } else {
      this.plot.setData(data);
    }
    if (!this.zoomed) this.reset();
  }

  options(kind, series, bands) {
    const width = Math.max(this.root.clientWidth, 120);
    return {
      width, height: this.height, padding: [10, 18, 0, 0],
      scales: { x: { time: false }, y: this.range ? { range: this.range } : {} },
      axes: axes(kind, this.size, this.form),
      legend: { show: false },
      cursor: {
        x: Boolean(this.onCursor), y: false, points: { show: false },
        drag: { x: this.zooms, y: false, setScale: this.zooms },
      },
      series: [{}, ...series.map((each) => ({
        stroke: each.colour ? paint(each.colour, each.share || 100) : "transparent", width: each.width ?? 1.6,
        dash: each.dash, points: { show: false }, spanGaps: each.span ?? false,
      }))],
      bands: bands.map((each) => ({ series: each.series, fill: paint(each.colour, each.share) })),
      hooks: {
        setCursor: [(u) => this.onCursor && this.onCursor(u.cursor.idx ?? null)],
        setSelect: [(u) => { if (u.select.width > 4) this.zoomed = true; }],
        ready: [(u) => u.over.addEventListener("dblclick", () => requestAnimationFrame(() => this.reset()))],
      },
    };
  }

  resize() {
    const width = this.root.clientWidth;
    if (this.plot && width > 60 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  move(by, factor = 1) {
    if (!this.plot) return;
    const { min, max } = this.plot.scales.x;
    const xs = this.plot.data[0], low = xs[0], high = xs[xs.length - 1];
    let length = Math.min((max - min) * factor, high - low);
    const middle = (min + max) / 2 + by * (max - min);
    let start = Math.max(low, middle - length / 2);
    if (start + length > high) start = high - length;
    this.zoomed = length < (high - low) * 0.999;
    this.plot.setScale("x", { min: start, max: start + length });
  }

  reset() {
    if (!this.plot) return;
    const xs = this.plot.data[0], high = xs[xs.length - 1];
    this.zoomed = false;
    if (xs.length) this.plot.setScale("x", { min: this.recent === null ? xs[0] : Math.max(xs[0], high - this.recent), max: high });
  }

  key(event) {
    const moves = { ArrowLeft: [-0.15, 1], ArrowRight: [0.15, 1], "+": [0, 0.7], "=": [0, 0.7], "-": [0, 1 / 0.7] };
    if (event.key === "0" || event.key === "Home") this.reset();
    else if (moves[event.key]) this.move(...moves[event.key]);
    else return;
    event.preventDefault();
  }

  wheel(event) {
    if (!this.plot || !(event.ctrlKey || event.metaKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) this.move(0, event.deltaY > 0 ? 1.2 : 1 / 1.2);
    else this.move(Math.sign(event.deltaX || event.deltaY) * 0.06);
  }
}

// All times of several columns of values, and each column on them.
export function align(parts) {
  const times = [...new Set(parts.flatMap((part) => part.time))].sort((a, b) => a - b);
  const place = new Map(times.map((at, index) => [at, index]));
  const columns = parts.flatMap((part) => part.columns.map((values) => {
    const column = new Array(times.length).fill(null);
    part.time.forEach((at, k) => { column[place.get(at)] = values[k] ?? null; });
    return column;
  }));
  return [times, ...columns];
}

// Shares of this many names have a colour of their own; all others together are the last one.
const MOST_SHARES = 8;

// Shares over time as stacked areas, with their newest values in words: the largest first, small ones together.
export function drawShares(canvas, list, { names, time: times, values }) {
  const sums = times.map((_, i) => values.reduce((sum, each) => sum + each[i], 0) || 1);
  const parts = names.map((name, k) => ({ name, shares: values[k].map((value, i) => value / sums[i]) }));
  const total = ({ shares }) => shares.reduce((sum, share) => sum + share, 0);
  parts.sort((a, b) => total(b) - total(a));
  if (parts.length > MOST_SHARES) {
    const rest = parts.splice(MOST_SHARES - 1);
    parts.push({ name: `${rest.length} others`, shares: times.map((_, i) => rest.reduce((sum, each) => sum + each.shares[i], 0)) });
  }
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  const n = times.length, length = times[n - 1] - times[0];
  // A single moment fills the width.
  const at = n === 1 ? [0, 0] : times.map((_, i) => i);
  const x = (i) => (n === 1 || !length ? width * (i / Math.max(at.length - 1, 1)) : width * (times[i] - times[0]) / length);
  const base = at.map(() => 0);
  parts.forEach(({ shares }, k) => {
    const tops = base.map((value, i) => value + shares[at[i]]);
    g.fillStyle = colour(`share-${k + 1}`);
    g.beginPath();
    tops.forEach((value, i) => g.lineTo(x(i), height * (1 - value)));
    for (let i = base.length - 1; i >= 0; i -= 1) g.lineTo(x(i), height * (1 - base[i]));
    g.closePath();
    g.fill();
    tops.forEach((value, i) => { base[i] = value; });
    if (!k) return;
    // A thin line between two areas: neighbours are told apart without their colours.
    g.strokeStyle = colour("surface");
    g.lineWidth = 1;
    g.beginPath();
    tops.forEach((value, i) => g.lineTo(x(i), height * (1 - (value - shares[at[i]]))));
    g.stroke();
  });
  list.replaceChildren(...parts.map(({ name, shares }, k) => {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    dot.setAttribute("viewBox", "0 0 10 10");
    dot.setAttribute("aria-hidden", "true");
    const square = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ width: 10, height: 10, rx: 2.5, fill: `var(--share-${k + 1})` })) square.setAttribute(key, value);
    dot.append(square);
    return make("li", { class: "share" }, dot, make("span", { text: name, title: name }), make("span", { text: `${(100 * shares[n - 1]).toFixed(0)} %` }));
  }));
}

// The probability of having crossed a value by each step, as bars.
export function drawBars(canvas, values) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  const step = width / values.length;
  values.forEach((value, i) => {
    g.fillStyle = paint("line");
    g.fillRect(i * step + 1, 0, Math.max(step - 2, 1), height);
    g.fillStyle = paint("forecast");
    g.fillRect(i * step + 1, height * (1 - value), Math.max(step - 2, 1), height * value);
  });
}

export function legendKey(name, kind, text) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 30 16");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", kind === "band" ? "rect" : "path");
  const settings = kind === "band"
    ? { x: 1, y: 2, width: 28, height: 12, rx: 2, fill: `var(--${name})`, opacity: 0.28 }
    : { d: "M1 8h28", stroke: `var(--${name})`, "stroke-width": 3, "stroke-dasharray": kind === "dash" ? "6 4" : "none" };
  for (const [key, value] of Object.entries(settings)) shape.setAttribute(key, value);
  svg.append(shape);
  return make("span", { class: "key" }, svg, document.createTextNode(text));
}
