// One machine: history and fan, what was forecast a while ago, scores, experts, and a question about the future.

import { Chart, align, drawBars, drawShares, legendKey } from "./charts.js";
import { STATES, isDate, make, number, percent, plainly, sign, span, time } from "./format.js";

const KEPT = 600;

function limits(columns) {
  const all = columns.flat().filter((value) => value !== null);
  if (!all.length) return null;
  const low = Math.min(...all), high = Math.max(...all);
  const room = 0.75 * (high - low || Math.abs(high) || 1);
  return [low - room, high + room];
}

export class MachineView {
  constructor(root, { ask, back }) {
    this.root = root;
    this.ask = ask;
    this.back = back;
    this.charts = [];
    this.details = null;
  }

  open(about, id) {
    this.close();
    this.about = about;
    this.id = id;
    this.target = about.targets[0];
    this.isChosen = false;
    this.details = null;
    this.showsAll = false;
    this.build();
    this.root.hidden = false;
  }

  close() {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    this.root.replaceChildren();
    this.root.hidden = true;
    this.details = null;
    this.id = null;
  }

  // A time of this machine: to the second where rows come that often.
  at(value, short = false) {
    const { history, time_kind: kind } = this.details;
    const n = history.time.length;
    const fine = n > 1 && history.time[n - 1] - history.time[n - 2] < 60;
    return time(value, kind, short ? (fine ? "seconds" : "clock") : (fine ? "exact" : "both"));
  }

  unit() {
    return this.about.units[this.target] ? ` ${this.about.units[this.target]}` : "";
  }

  build() {
    const level = percent(this.about.level);
    this.heading = make("h2", { id: "machine-name", tabindex: "-1", text: "…" });
    this.badge = make("span", { class: "badge" });
    this.counted = make("span", { class: "note" });
    this.buttons = this.about.targets.map((target) => make("button", {
      type: "button", text: target, "aria-pressed": String(target === this.target), onclick: () => { this.isChosen = true; this.choose(target); },
    }));
    const ahead = this.about.horizon !== null;
    const legend = make("div", { class: "legend" }, legendKey("value", "line", "measured"),
      ...(ahead ? [legendKey("forecast", "dash", "forecast"), legendKey("forecast", "band", "50 % and 90 % intervals"),
        legendKey("earlier", "dash", "forecast a while ago")] : [legendKey("forecast", "dash", "predicted"), legendKey("forecast", "band", `${level} interval`)]));
    this.spans = make("div", { class: "segments", role: "group", "aria-label": "How much is shown" }, ...["Recent", "All"].map((text) => make("button", {
      type: "button", text, "aria-pressed": String((text === "All") === this.showsAll), onclick: () => this.show(text === "All"),
    })));
    this.place = make("div");
    this.readout = make("p", { class: "readout", "aria-live": "off" });
    this.errorPlace = make("div");
    this.errorText = make("div", { class: "row" });
    this.coveragePlace = make("div");
    this.coverageText = make("div", { class: "row" });
    this.weights = this.shareCard("weights", "Experts' weights over time", ahead ? "What the forecast is mixed from." : "What the prediction is mixed from.");
    this.relevance = this.shareCard("relevance", "Relevance over time", "What the circuits tell rows apart by.");
    this.root.append(
      make("div", { class: "machine-head" },
        this.about.key && make("a", { class: "back", href: this.back(), "aria-label": "Back to all machines" }, document.createTextNode("‹ All machines")),
        this.heading, this.badge, this.counted),
      make("div", { class: "cards" },
        make("section", { class: "card wide", "aria-label": "History and forecast" },
          make("div", { class: "card-head" }, make("div", { class: "targets", role: "group", "aria-label": "Target" }, ...this.buttons), this.spans),
          legend,
          this.place, this.readout,
          make("p", { class: "keys" }, "Drag to zoom, double-click for all. Keys: ", ...["←", "→", "+", "−", "0"].map((key) => make("kbd", { text: key })))),
        ahead ? this.riskCard() : null,
        this.card("Rolling error", this.errorText, this.errorPlace, make("div", { class: "legend" }, legendKey("forecast", "line", "model"), legendKey("naive", "line", "last value"))),
        this.card("Rolling coverage", this.coverageText, this.coveragePlace, make("div", { class: "legend" }, legendKey("forecast", "line", "inside"), legendKey("naive", "dash", `should be ${level}`))),
        this.weights.card, this.relevance.card));
    const narrow = innerWidth < 700;
    this.main = new Chart(this.place, { label: "Chart of history and forecast", height: narrow ? 260 : 380, onCursor: (index) => this.read(index), range: (u, low, high) => this.bound(low, high) });
    this.errors = new Chart(this.errorPlace, { label: "Chart of the rolling error", height: 150, size: 50, zoom: false });
    this.covered = new Chart(this.coveragePlace, { label: "Chart of the rolling coverage", height: 150, size: 50, zoom: false, range: () => [0, 1.02], form: percent });
    this.charts = [this.main, this.errors, this.covered];
  }

  card(title, ...children) {
    return make("section", { class: "card half" }, make("div", { class: "card-head" }, make("h3", { text: title })), ...children);
  }

  shareCard(name, title, words) {
    const strip = make("canvas", { class: "strip", "aria-hidden": "true" });
    const list = make("ol", { class: "shares", "aria-label": `${title}: now` });
    const ends = make("div", { class: "ends", "aria-hidden": "true" });
    const card = make("section", { class: "card half", "aria-label": title, "data-shares": name },
      make("div", { class: "card-head" }, make("h3", { text: title }), make("span", { class: "note", text: words })), strip, ends, list);
    return { card, strip, ends, list };
  }

  drawShares() {
    for (const name of ["weights", "relevance"]) {
      const { strip, ends, list } = this[name], found = this.details[name];
      const empty = !found.time.length;
      strip.hidden = ends.hidden = empty;
      if (empty) {
        list.replaceChildren(make("li", { class: "note", text: name === "weights" ? "None yet." : "None yet: no circuit has learnt enough rows, or there are no circuits." }));
        continue;
      }
      const places = [found.time[0], found.time[found.time.length - 1]];
      ends.replaceChildren(...places.map((at) => make("span", { text: this.at(at) })));
      drawShares(strip, list, found);
    }
  }

  riskCard() {
    const choice = (label, options) => make("select", { "aria-label": label }, ...options.map(([value, text]) => make("option", { value, text })));
    this.riskSide = choice("Direction", [["below", "falls below"], ["above", "rises above"]]);
    this.riskValue = make("input", { type: "number", step: "any", required: "", "aria-label": "Value" });
    this.riskSteps = make("select", { "aria-label": "Within" });
    this.riskWhose = choice("Of what", [["one", "for this machine"], ["all", "for the sum of all machines"]]);
    this.riskTarget = make("b", { text: this.target });
    this.riskUnit = make("span", { class: "note", text: this.unit() });
    this.answer = make("div", { class: "answer", role: "status" });
    const form = make("form", {
      class: "risk-form", onsubmit: (event) => { event.preventDefault(); this.askRisk(); },
    }, document.createTextNode("How likely is it that "), this.riskTarget, this.riskSide, this.riskValue, this.riskUnit,
    document.createTextNode(" within "), this.riskSteps, this.about.key ? this.riskWhose : null, make("button", { class: "primary", type: "submit", text: "Ask" }));
    return make("section", { class: "card wide risk", "aria-label": "A question about the future" },
      make("div", { class: "card-head" }, make("h3", { text: "Ask about the future" })), form, this.answer);
  }

  async askRisk() {
    const query = { machine: this.id, target: this.target, steps: this.riskSteps.value, [this.riskSide.value]: this.riskValue.value };
    if (this.riskWhose.value === "all") query.sum = "all";
    this.answer.replaceChildren(make("span", { class: "note", text: "drawing paths …" }));
    const found = await this.ask(query);
    if (found.error) {
      this.answer.replaceChildren(make("span", { class: "wrong", text: found.error }));
      return;
    }
    const bars = make("canvas", { class: "bars", "aria-hidden": "true" });
    const sum = this.riskWhose.value === "all";
    const until = found.times.length ? this.at(found.times[found.times.length - 1]) : "";
    const words = sum
      ? `by ${until}, for the sum of ${found.machines} machines that are independent; ${chance(found.together)} if they move together. The truth usually lies between.`
      : `by ${until}. From ${found.paths.toLocaleString("en-GB")} joint paths; the bars show the chance by each step.`;
    this.answer.replaceChildren(make("span", { class: "percent", text: chance(found.probability) }), make("span", { class: "note", text: words }), bars);
    drawBars(bars, found.by_step);
  }

  // Columns of an open alarm: what is wrong is shown first, until somebody chooses.
  prefer(columns) {
    const target = this.about.targets.find((each) => columns.includes(each));
    if (this.isChosen || !target) return;
    this.isChosen = true;
    this.choose(target);
  }

  choose(target) {
    this.target = target;
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.textContent === target));
    if (this.riskTarget) {
      this.riskTarget.textContent = target;
      this.riskUnit.textContent = this.unit();
      this.riskValue.value = "";
      this.answer.replaceChildren();
    }
    this.main.zoomed = false;
    this.draw();
  }

  show(all) {
    this.showsAll = all;
    for (const button of this.spans.children) button.setAttribute("aria-pressed", String((button.textContent === "All") === all));
    this.main.zoomed = false;
    this.draw();
  }

  update(message) {
    if (message.id !== this.id) return;
    if (message.whole || !this.details) this.details = message;
    else this.grow(message);
    this.draw();
  }

  grow(message) {
    const { history } = this.details;
    history.row.push(...message.history.row);
    history.time.push(...message.history.time);
    for (const [target, parts] of Object.entries(message.history.targets)) {
      for (const [name, values] of Object.entries(parts)) history.targets[target][name].push(...values);
    }
    const extra = history.time.length - KEPT;
    if (extra > 0) {
      history.row.splice(0, extra);
      history.time.splice(0, extra);
      for (const parts of Object.values(history.targets)) for (const values of Object.values(parts)) values.splice(0, extra);
    }
    // Sent when they have changed.
    const { weights, relevance } = this.details;
    this.details = { ...message, history, weights: message.weights || weights, relevance: message.relevance || relevance };
  }

  draw() {
    const details = this.details;
    if (!details) return;
    const { history, forecast, earlier, time_kind: kind } = details;
    this.heading.textContent = plainly(details.name);
    this.badge.dataset.health = details.health;
    this.badge.replaceChildren(sign(details.health), document.createTextNode(STATES[details.health].word));
    this.counted.textContent = `${details.n_rows.toLocaleString("en-GB")} rows learnt, last one ${this.at(history.time[history.time.length - 1])}`;
    this.drawMain(kind, history, forecast, earlier);
    this.drawScores(kind, history, details.scores);
    this.drawShares();
    if (forecast && this.riskSteps) this.fillRisk(forecast, history, kind);
    this.read(null);
  }

  drawMain(kind, history, forecast, earlier) {
    const target = this.target, past = history.targets[target];
    const last = history.time.length - 1;
    const parts = [{ time: history.time, columns: [past.value] }];
    const series = [{ colour: "value", width: 1.8 }];
    const bands = [];
    if (this.about.horizon === null) {
      parts[0].columns.push(past.mean, past.lower, past.upper);
      series.push({ colour: "forecast", dash: [5, 4] }, { width: 0 }, { width: 0 });
      bands.push({ series: [4, 3], colour: "forecast", share: 20 });
    } else if (forecast) {
      const now = past.value[last];
      const fan = forecast.targets[target];
      // The fan opens at the newest value.
      const joined = (values) => (forecast.made === history.time[last] && now !== null ? [now, ...values] : values);
      const times = forecast.made === history.time[last] && now !== null ? [forecast.made, ...forecast.time] : forecast.time;
      const [q05, q25, q75, q95] = fan.quantiles.length === 4 ? fan.quantiles : [fan.lower, fan.lower, fan.upper, fan.upper];
      parts.push({ time: times, columns: [fan.mean, q05, q95, q25, q75].map(joined) });
      series.push({ colour: "forecast", width: 2, dash: [6, 4], span: true }, ...Array(4).fill({ width: 0, span: true }));
      bands.push({ series: [4, 3], colour: "forecast", share: 16 }, { series: [6, 5], colour: "forecast", share: 26 });
      if (earlier) {
        const old = earlier.targets[target];
        parts.push({ time: earlier.time, columns: [old.mean, old.lower, old.upper] });
        series.push({ colour: "earlier", width: 1.6, dash: [3, 3], span: true }, { width: 0, span: true }, { width: 0, span: true });
        bands.push({ series: [9, 8], colour: "earlier", share: 13 });
      }
    }
    const data = align(parts);
    // Four times what is forecast, or the newest hundred rows.
    const ahead = forecast && this.about.horizon !== null ? forecast.time[forecast.time.length - 1] - forecast.made : null;
    const from = this.showsAll ? 0 : Math.max(0, last - 100);
    const start = this.showsAll ? -Infinity : ahead === null ? history.time[from] : history.time[last] - 4 * ahead;
    this.main.recent = this.showsAll ? null : data[0][data[0].length - 1] - start;
    const seen = past.value.filter((_, k) => history.time[k] >= start);
    this.limits = limits([seen, ...(forecast ? [forecast.targets[target].mean] : []), ...(earlier ? [earlier.targets[target].mean] : [])]);
    this.main.set(kind, series, bands, data);
    this.shown = { data, n: series.length };
    const next = forecast && this.about.horizon !== null ? this.sentence(forecast) : "";
    this.place.setAttribute("aria-label", `Chart of ${target}. Newest value ${number(past.value[last])}${this.unit()}. ${next}`);
  }

  // Values and means decide what is seen: an interval that is very wide must not flatten them.
  bound(low, high) {
    if (!this.limits || low === null) return [low ?? 0, high ?? 1];
    const room = 0.06 * (high - low) || Math.abs(high) || 1;
    return [Math.max(low - room, this.limits[0]), Math.min(high + room, this.limits[1])];
  }

  sentence(forecast) {
    const fan = forecast.targets[this.target], last = fan.mean.length - 1;
    return `Forecast for ${this.at(forecast.time[last])}: ${number(fan.mean[last])}${this.unit()}, ${percent(forecast.level)} between ${number(fan.lower[last])} and ${number(fan.upper[last])}.`;
  }

  // The values under the cursor in words; without a cursor, the newest and the last of the forecast.
  read(index) {
    if (!this.shown || !this.details) return;
    const { data, n } = this.shown;
    if (index === null) {
      const { history, forecast } = this.details, past = history.targets[this.target];
      const last = history.time.length - 1;
      const words = forecast && this.about.horizon !== null ? this.sentence(forecast) : "";
      this.readout.replaceChildren(make("b", { text: `${number(past.value[last])}${this.unit()}` }), document.createTextNode(` at ${this.at(history.time[last])}. ${words}`));
      return;
    }
    const at = (k) => (k <= n ? data[k][index] : null);
    const said = [];
    if (at(1) !== null) said.push(`measured ${number(at(1))}${this.unit()}`);
    if (this.about.horizon === null && at(2) !== null) said.push(`predicted ${number(at(2))}, ${percent(this.about.level)} between ${number(at(3))} and ${number(at(4))}`);
    if (this.about.horizon !== null && at(1) === null && at(2) !== null) said.push(`forecast ${number(at(2))}, 90 % between ${number(at(3))} and ${number(at(4))}`);
    if (this.about.horizon !== null && n > 6 && at(7) !== null && at(7) !== undefined) said.push(`forecast a while ago ${number(at(7))}, ${percent(this.about.level)} between ${number(at(8))} and ${number(at(9))}`);
    this.readout.replaceChildren(make("b", { text: this.at(data[0][index]) }), document.createTextNode(`: ${said.join("; ")}`));
  }

  drawScores(kind, history, scores) {
    const past = history.targets[this.target], score = scores[this.target];
    this.errors.set(kind, [{ colour: "forecast", width: 1.8 }, { colour: "naive", width: 1.5 }], [], [history.time, past.rmse, past.naive]);
    const should = history.time.map(() => this.about.level);
    this.covered.set(kind, [{ colour: "forecast", width: 1.8 }, { colour: "naive", width: 1.3, dash: [5, 4] }], [], [history.time, past.coverage, should]);
    const better = score.rmse !== null && score.naive ? 1 - score.rmse / score.naive : null;
    this.errorText.replaceChildren(make("span", { class: "number", text: number(score.rmse) }), make("span", { class: "note", text: better === null ? "not scored yet"
      : [this.unit().trim(), against(better)].filter(Boolean).join(", ") }));
    this.coverageText.replaceChildren(make("span", { class: "number", text: percent(score.coverage, 1) }), make("span", { class: "note", text: `of values inside their ${percent(this.about.level)} intervals` }));
  }

  fillRisk(forecast, history, kind) {
    const n = forecast.time.length;
    if (this.riskSteps.options.length !== n) {
      const step = n > 1 ? forecast.time[1] - forecast.time[0] : forecast.time[0] - forecast.made;
      const all = Array.from({ length: n }, (_, k) => k + 1).filter((k) => n <= 24 || k % Math.ceil(n / 24) === 0 || k === n);
      if (this.riskSteps.options.length !== all.length) {
        this.riskSteps.replaceChildren(...all.map((k) => make("option", { value: k, text: kind === "rows" ? `${k} rows` : span(k * step, kind) })));
        this.riskUntil = isDate(kind);
        this.riskSteps.value = String(all[all.length - 1]);
      }
    }
    if (this.riskUntil) {
      // Which time that is, as rows come.
      for (const option of this.riskSteps.options) {
        const at = forecast.time[option.value - 1];
        option.textContent = `${span(at - forecast.made, kind)}, by ${this.at(at, at - forecast.made < 72000)}`;
      }
    }
    if (this.riskValue.value === "" && document.activeElement !== this.riskValue) {
      const lower = forecast.targets[this.target].lower;
      this.riskValue.value = String(Number(Number(lower[lower.length - 1]).toPrecision(3)));
    }
  }
}

/** A share of paths in words: that none of them did says nothing about rarer ones. */
function chance(share) {
  return share === 0 ? "< 1 %" : share === 1 ? "> 99 %" : percent(share);
}

/** An error beside that of the last value, in words. */
function against(better) {
  const percent = Math.abs(100 * better).toFixed(0);
  return percent === "0" ? "as much as the last value" : `${percent} % ${better >= 0 ? "less" : "more"} than the last value`;
}
