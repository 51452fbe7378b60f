// The page: what is open, what the server sends, and what people do.

import { loadCharts } from "./charts.js";
import { STATES, make, sign } from "./format.js";
import { Inbox } from "./inbox.js";
import { MachineView } from "./machine.js";
import { Tiles } from "./tiles.js";

const $ = (id) => document.getElementById(id);
const kept = {
  get(name) { try { return localStorage.getItem(`momostream.${name}`); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(`momostream.${name}`, value); } catch { /* storage is switched off */ } },
};

const page = { about: null, feed: null, machine: null, health: "", search: "", events: null, rows: null, kind: null, range: [0, 0] };

async function get(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (answer.status === 401 && path !== "login") askForToken();
  return answer.ok ? body : { error: body.error || `the server answered ${answer.status}`, status: answer.status };
}

// ---------------------------------------------------------------- where we are

const hash = (machine) => `#/${encodeURIComponent(page.feed ? page.feed.name : "")}${machine ? `/${machine}` : ""}`;

function route() {
  const [, feed, machine] = location.hash.split("/");
  const named = page.about.feeds.find((each) => each.name === decodeURIComponent(feed || ""));
  const chosen = named || page.about.feeds[0];
  if (chosen !== page.feed) {
    page.feed = chosen;
    page.kind = chosen.time_kind || null;
    tiles.clear();
    tiles.about = chosen;
    $("feed").value = chosen.name;
    page.rows = null;
  }
  const before = page.machine;
  page.machine = machine || null;
  $("grid-view").hidden = Boolean(page.machine);
  show("machines");
  if (page.machine) {
    view.open(page.feed, page.machine);
    showAlarm();
    scrollTo(0, 0);
    view.heading.focus({ preventScroll: true });
  } else {
    view.close();
    if (before) {
      $("main").focus({ preventScroll: true });
      tiles.drawAll();
    }
    tiles.look();
  }
  document.title = page.about.title;
  listen();
}

function show(which) {
  document.querySelector(".layout").dataset.view = which;
  $("tab-machines").setAttribute("aria-selected", String(which === "machines"));
  $("tab-inbox").setAttribute("aria-selected", String(which === "inbox"));
}

// ---------------------------------------------------------------- what the server sends

let soon = null;
function listenSoon() {
  clearTimeout(soon);
  soon = setTimeout(listen, 150);
}

function listen() {
  clearTimeout(soon);
  if (page.events) page.events.close();
  if (document.hidden || !page.feed) return;
  if (page.machine && !window.uPlot) {
    loadCharts().then(listen, () => setTimeout(listen, 2000));
    return;
  }
  const [from, to] = page.machine ? [0, 0] : page.range;
  const query = new URLSearchParams({ feed: page.feed.name, from, to });
  if (page.search) query.set("search", page.search);
  if (page.health) query.set("health", page.health);
  if (page.machine) query.set("machine", page.machine);
  const events = new EventSource(`events?${query}`);
  page.events = events;
  const on = (name, act) => events.addEventListener(name, (event) => { if (page.events === events) act(JSON.parse(event.data)); });
  on("overview", overview);
  on("tiles", (message) => {
    if (page.machine) return;
    tiles.update(message);
    empty(message.total);
    // A feed without keys is one machine.
    if (!page.feed.key && message.order.length === 1) location.replace(hash(message.order[0]));
  });
  on("alarms", alarms);
  on("machine", (message) => { page.kind = message.time_kind; view.update(message); });
  events.onopen = () => live("yes");
  events.onerror = () => {
    live("no");
    if (events.readyState === EventSource.CLOSED) setTimeout(() => page.events === events && begin(), 3000);
  };
}

function live(state) {
  // Counts change every second: only what needs somebody is read out.
  if (state !== $("pulse").dataset.live && (state === "no" || $("pulse").dataset.live === "no")) {
    $("said").textContent = state === "no" ? "Connection lost, trying again" : "Connected again";
  }
  $("pulse").dataset.live = state;
  if (state === "no") $("pulse-text").textContent = "connection lost, trying again";
}

function overview(message) {
  const now = performance.now();
  page.kind = message.time_kind || page.kind;
  const rate = page.rows && now > page.rows.at + 500 ? (message.rows - page.rows.n) / ((now - page.rows.at) / 1000) : null;
  if (!page.rows || now > page.rows.at + 5000) page.rows = { n: message.rows, at: now };
  const machines = `${message.machines.toLocaleString("en-GB")} machine${message.machines === 1 ? "" : "s"}`;
  const words = message.status === "running" ? (rate ? `live, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} rows/s` : "live") : message.status;
  $("pulse-text").textContent = `${words} · ${machines}`;
  $("problem").hidden = !message.problem;
  $("problem").textContent = message.problem ? `The feed has stopped: ${message.problem}` : "";
  const order = Object.keys(STATES);
  if ($("filters").childElementCount !== order.length) {
    $("filters").replaceChildren(...order.map((health) => make("button", {
      class: "chip", type: "button", "data-health": health, "aria-pressed": "false", onclick: () => filter(health),
    }, sign(health), make("b"), document.createTextNode(` ${STATES[health].word}`))));
  }
  for (const chip of $("filters").children) {
    const n = message.counts[chip.dataset.health] || 0;
    chip.dataset.n = n;
    chip.querySelector("b").textContent = n.toLocaleString("en-GB");
    chip.setAttribute("aria-pressed", String(page.health === chip.dataset.health));
  }
}

// A machine with an open alarm is shown by the column that has it.
function showAlarm() {
  const alarm = page.machine && inbox.records.find((record) => record.machine === page.machine && record.end === null);
  if (alarm) view.prefer(alarm.columns);
}

let heard = null;
function alarms(message) {
  inbox.update(message);
  if (heard === null) showAlarm();
  const records = inbox.records;
  const n = inbox.waiting;
  $("tab-count").hidden = !n;
  $("tab-count").textContent = n;
  document.title = n ? `(${n}) ${page.about.title}` : page.about.title;
  const open = new Set(records.filter((record) => record.end === null).map((record) => record.id));
  const fresh = heard ? records.filter((record) => open.has(record.id) && !heard.has(record.id)) : [];
  if (fresh.length) $("said").textContent = `Alarm: ${fresh[0].name}, ${fresh[0].why}`;
  heard = open;
}

function empty(total) {
  $("empty").hidden = total > 0;
  $("empty").textContent = page.search || page.health ? "No machine fits." : page.feed.is_pushed
    ? `No rows yet. Push some to /feeds/${page.feed.name}/rows.` : "No rows yet.";
}

// ---------------------------------------------------------------- what people do

function filter(health) {
  page.health = page.health === health ? "" : health;
  if (page.machine) location.hash = hash();
  scrollTo(0, 0);
  listen();
}

let typing = null;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    page.search = $("search").value.trim();
    if (page.machine) location.hash = hash();
    scrollTo(0, 0);
    listen();
  }, 200);
});
$("feed").addEventListener("change", () => { location.hash = `#/${encodeURIComponent($("feed").value)}`; });
$("tab-machines").addEventListener("click", () => { show("machines"); tiles.lookSoon(); });
$("tab-inbox").addEventListener("click", () => show("inbox"));
$("theme").addEventListener("click", () => {
  const next = { auto: "light", light: "dark", dark: "auto" }[document.documentElement.dataset.theme] || "light";
  kept.set("theme", next);
  document.documentElement.dataset.theme = next;
  nameTheme();
  redraw();
});
function nameTheme() {
  const words = { auto: "as the system", light: "light", dark: "dark" };
  $("theme").setAttribute("aria-label", `Colours: ${words[document.documentElement.dataset.theme]}`);
  $("theme").title = $("theme").getAttribute("aria-label");
}
function redraw() {
  tiles.drawAll();
  if (page.machine) view.draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

$("by").value = kept.get("by") || "";
$("by").addEventListener("change", () => kept.set("by", $("by").value.trim()));
async function acknowledge(id) {
  const body = JSON.stringify({ by: $("by").value.trim() });
  const found = await get(`alarms/${encodeURIComponent(id)}/acknowledge`, { method: "POST", headers: { "content-type": "application/json" }, body });
  $("said").textContent = found.error ? `Not acknowledged: ${found.error}` : "Acknowledged";
  const record = inbox.records.find((each) => each.id === id);
  if (record && !found.error) Object.assign(record, found);
  if (found.error) $("problem").textContent = `Not acknowledged: ${found.error}`;
  $("problem").hidden = !found.error;
  inbox.draw();
}

document.addEventListener("keydown", (event) => {
  const typing_ = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "Escape" && page.machine && page.feed.key && !typing_) location.hash = hash();
  if (event.key === "/" && !typing_) { event.preventDefault(); $("search").focus(); }
});
document.addEventListener("visibilitychange", listen);

function askForToken() {
  const dialog = $("login");
  if (!dialog.open) dialog.showModal();
}
$("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const found = await get("login", { method: "POST", body: JSON.stringify({ token: $("token").value }) });
  $("login-problem").hidden = !found.error;
  $("login-problem").textContent = found.error || "";
  if (!found.error) {
    $("token").value = "";
    $("login").close();
    begin();
  }
});

// ---------------------------------------------------------------- begin

const tiles = new Tiles($("grid"), { link: (id) => hash(id), onRange: (from, to) => { page.range = [from, to]; if (!page.machine) listenSoon(); } });
const inbox = new Inbox($("inbox"), { link: (id) => hash(id), acknowledge, kind: () => page.kind });
const view = new MachineView($("machine-view"), {
  back: () => hash(),
  ask: (query) => get(`feeds/${encodeURIComponent(page.feed.name)}/risk?${new URLSearchParams(query)}`),
});

async function begin() {
  const about = await get("about").catch(() => ({ error: "the server cannot be reached" }));
  const ready = about.error ? [] : about.feeds.filter((feed) => feed.targets);
  if (!ready.length) {
    if (about.status !== 401) setTimeout(begin, 1500);
    $("pulse-text").textContent = about.error || (about.feeds.find((feed) => feed.problem) || { problem: "starting" }).problem;
    return;
  }
  // Feeds that start later are offered when the page is opened again; one that has failed must not hide the others.
  about.feeds = ready;
  page.about = about;
  page.feed = null;
  $("title").textContent = about.title;
  $("feed").replaceChildren(...about.feeds.map((feed) => make("option", { value: feed.name, text: feed.title })));
  $("feed-choice").hidden = about.feeds.length < 2;
  route();
}

addEventListener("hashchange", () => page.about && route());
nameTheme();
begin();
