// The tiles: only those on the screen exist, and only those are asked for.

import { STATES, colour, make, number, plainly, sign } from "./format.js";

export class Tiles {
  constructor(grid, { onRange, link }) {
    this.grid = grid;
    this.link = link;
    this.onRange = onRange;
    this.known = new Map();
    this.elements = new Map();
    this.order = [];
    this.first = 0;
    this.total = 0;
    this.range = [0, 0];
    this.about = { units: {}, targets: [] };
    this.waiting = false;
    const look = () => this.lookSoon();
    addEventListener("scroll", look, { passive: true });
    new ResizeObserver(() => { this.lookSoon(); this.drawAll(); }).observe(grid);
  }

  lookSoon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.look(); });
  }

  // Which tiles are on the screen, from the size of one and the position of the grid.
  look() {
    if (this.grid.offsetParent === null) return;
    const style = getComputedStyle(this.grid);
    const columns = style.gridTemplateColumns.split(" ").length;
    const sample = this.grid.querySelector(".tile");
    const gap = parseFloat(style.rowGap) || 0;
    const height = (sample ? sample.offsetHeight : 150) + gap;
    const top = -this.grid.getBoundingClientRect().top;
    const start = Math.max(0, Math.floor(top / height)) * columns;
    const stop = Math.ceil((top + innerHeight) / height) * columns;
    this.height = height;
    this.columns = columns;
    this.pad();
    const [from, to] = this.range;
    // With two rows more on each side: asking again, for each row that comes into sight, would send the others again.
    const more = 2 * columns;
    if (start < from || stop > to || to - from > stop - start + 3 * more) {
      this.range = [Math.max(0, start - more), stop + more];
      this.onRange(...this.range);
    }
  }

  pad() {
    if (!this.columns) return;
    const before = Math.floor(this.first / this.columns) * this.height;
    const after = Math.max(0, Math.ceil((this.total - this.first - this.order.length) / this.columns)) * this.height;
    this.grid.style.paddingTop = `${before}px`;
    this.grid.style.paddingBottom = `${after}px`;
  }

  clear() {
    this.known.clear();
    for (const element of this.elements.values()) element.remove();
    this.elements.clear();
    this.order = [];
  }

  update(message) {
    this.total = message.total;
    this.first = message.from;
    this.order = message.order;
    for (const tile of message.tiles) this.known.set(tile.id, tile);
    for (const [id, element] of this.elements) {
      if (!this.order.includes(id)) { element.remove(); this.elements.delete(id); }
    }
    for (const id of [...this.known.keys()]) if (!this.order.includes(id)) this.known.delete(id);
    let before = null;
    for (const id of this.order) {
      const tile = this.known.get(id);
      if (!tile) continue;
      let element = this.elements.get(id);
      if (!element) {
        element = this.build(tile);
        this.elements.set(id, element);
      }
      if (element.dataset.version !== `${tile.version} ${tile.health}`) this.fill(element, tile);
      const after = before ? before.nextSibling : this.grid.firstChild;
      if (after !== element) this.grid.insertBefore(element, after);
      before = element;
    }
    this.pad();
    this.lookSoon();
  }

  build(tile) {
    return make("a", { class: "tile", href: this.link(tile.id) },
      make("div", { class: "tile-head" }, make("span", { class: "tile-name" }), make("span", { class: "badge" })),
      make("div", { class: "tile-values" }), make("canvas", { "aria-hidden": "true" }));
  }

  fill(element, tile) {
    const state = STATES[tile.health];
    element.dataset.version = `${tile.version} ${tile.health}`;
    element.dataset.health = tile.health;
    const [name, badge] = element.firstChild.children;
    name.textContent = plainly(tile.name);
    name.title = plainly(tile.name);
    badge.replaceChildren(sign(tile.health), document.createTextNode(state.word));
    const [first, ...others] = Object.entries(tile.values);
    const unit = (column) => this.about.units[column] || "";
    const words = others.map(([column, value]) => `${column} ${number(value)} ${unit(column)}`.trim());
    // A unit says enough; the name of the column is in the title.
    const short = others.map(([column, value]) => (unit(column) ? `${number(value)} ${unit(column)}` : `${column} ${number(value)}`));
    element.children[1].replaceChildren(
      make("span", { class: "big", text: number(first ? first[1] : null) }, make("span", { class: "unit", text: unit(first && first[0]) })),
      make("span", { class: "small", text: short[0] || "", title: words.join(", ") }));
    const said = Object.entries(tile.values).map(([column, value]) => `${column} ${number(value)} ${unit(column)}`);
    element.setAttribute("aria-label", `${plainly(tile.name)}: ${state.word}. ${said.join(", ")}. ${tile.alarm || ""}`.trim());
    this.draw(element.lastChild, tile);
  }

  drawAll() {
    for (const [id, element] of this.elements) if (this.known.has(id)) this.draw(element.lastChild, this.known.get(id));
  }

  // The newest values, and the fan of what comes next.
  draw(canvas, tile) {
    const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width || !height) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    const fan = tile.fan || { mean: [], lower: [], upper: [] };
    const values = tile.line.filter((value) => value !== null);
    const all = [...values, ...fan.lower, ...fan.upper].filter((value) => value !== null);
    if (all.length < 2) return;
    let low = Math.min(...values, ...fan.mean), high = Math.max(...values, ...fan.mean);
    // A wide fan must not flatten the line.
    const room = (high - low || Math.abs(high) || 1) * 0.6;
    low = Math.max(Math.min(...all), low - room);
    high = Math.min(Math.max(...all), high + room);
    const ahead = fan.mean.length * (tile.every || 1);
    const n = tile.line.length + ahead;
    const x = (i) => 1 + (width - 3) * i / Math.max(n - 1, 1);
    const y = (value) => height - 3 - (height - 7) * (Math.min(Math.max(value, low), high) - low) / (high - low || 1);
    const last = tile.line.length - 1;
    const at = (k) => last + (k + 1) * (tile.every || 1);
    if (fan.mean.length && values.length) {
      g.fillStyle = colour("forecast");
      g.globalAlpha = 0.2;
      g.beginPath();
      g.moveTo(x(last), y(values[values.length - 1]));
      fan.upper.forEach((value, k) => value !== null && g.lineTo(x(at(k)), y(value)));
      for (let k = fan.lower.length - 1; k >= 0; k--) if (fan.lower[k] !== null) g.lineTo(x(at(k)), y(fan.lower[k]));
      g.closePath();
      g.fill();
      g.globalAlpha = 1;
      g.strokeStyle = colour("forecast");
      g.lineWidth = 1.5;
      g.beginPath();
      g.moveTo(x(last), y(values[values.length - 1]));
      fan.mean.forEach((value, k) => value !== null && g.lineTo(x(at(k)), y(value)));
      g.stroke();
    }
    g.strokeStyle = colour("value");
    g.lineWidth = 1.5;
    g.lineJoin = "round";
    g.beginPath();
    let down = false;
    tile.line.forEach((value, i) => {
      if (value === null) { down = false; return; }
      if (down) g.lineTo(x(i), y(value)); else g.moveTo(x(i), y(value));
      down = true;
    });
    g.stroke();
    g.fillStyle = colour("value");
    g.beginPath();
    g.arc(x(last), y(values[values.length - 1]), 2.2, 0, 7);
    g.fill();
  }
}
