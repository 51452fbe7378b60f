// The alarms: open ones first, acknowledged by whoever looks after them.

import { ago, make, plainly, sign, span, time } from "./format.js";

export class Inbox {
  constructor(root, { link, acknowledge, kind }) {
    this.list = root.querySelector("#alarms");
    this.none = root.querySelector("#no-alarms");
    this.link = link;
    this.acknowledge = acknowledge;
    this.kind = kind;
    this.records = [];
    this.which = "new";
    for (const button of root.querySelectorAll("[data-which]")) {
      button.addEventListener("click", () => {
        this.which = button.dataset.which;
        for (const other of root.querySelectorAll("[data-which]")) other.setAttribute("aria-pressed", String(other === button));
        this.draw();
      });
    }
  }

  // The order of all, and those that have changed.
  update({ order, records }) {
    const known = new Map([...this.records, ...records].map((record) => [record.id, record]));
    this.records = order.map((id) => known.get(id)).filter(Boolean);
    this.draw();
  }

  get waiting() {
    return this.records.filter((record) => record.acknowledged === null).length;
  }

  draw() {
    const focused = document.activeElement && document.activeElement.closest(".alarm");
    const id = focused ? focused.dataset.id : null;
    const shown = this.which === "all" ? this.records
      : this.records.filter((record) => record.acknowledged === null || record.end === null);
    this.list.replaceChildren(...shown.slice(0, 100).map((record) => this.item(record)));
    this.none.hidden = shown.length > 0;
    if (id) {
      const again = this.list.querySelector(`[data-id="${CSS.escape(id)}"] button, [data-id="${CSS.escape(id)}"] a`);
      if (again) again.focus({ preventScroll: true });
    }
  }

  item(record) {
    const kind = this.kind();
    const open = record.end === null;
    const length = (open ? 0 : record.end - record.begin);
    const when = open ? `since ${time(record.begin, kind)}` : `${time(record.begin, kind)}${length > 0 ? `, for ${span(length, kind)}` : ""}`;
    const rows = record.n_rows === 1 ? "1 row" : `${record.n_rows} rows`;
    const badge = make("span", { class: "badge", "data-severity": record.severity }, sign(record.severity === "critical" ? "alarm" : "watch"),
      document.createTextNode(record.severity === "critical" ? "Critical" : "Warning"));
    const state = record.acknowledged !== null
      ? make("span", { class: "seen", text: `✓ Seen${record.by ? ` by ${record.by}` : ""}, ${ago(record.acknowledged)}` })
      : make("span", { class: "when", text: open ? "Open" : "Ended" });
    const button = record.acknowledged !== null ? null : make("button", {
      class: open ? "primary" : "quiet", type: "button", text: "Acknowledge",
      "aria-label": `Acknowledge the alarm of ${plainly(record.name.slice(0, 80))}: ${record.why}`,
      onclick: (event) => { event.currentTarget.disabled = true; this.acknowledge(record.id); },
    });
    return make("li", { class: "alarm", "data-id": record.id, "data-open": open ? "yes" : "no" },
      make("div", { class: "alarm-head" }, make("a", { href: this.link(record.machine), text: plainly(record.name), title: plainly(record.name) }), badge),
      make("p", { class: "why", text: record.why }),
      make("p", { class: "when", text: `${when} · ${rows} · ${record.columns.join(", ")}` }),
      make("div", { class: "alarm-foot" }, state, button));
  }
}
