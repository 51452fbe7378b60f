// Drives the page in headless Chromium: node page.mjs PLAYWRIGHT CHROMIUM ADDRESS PHASE [FOLDER FOR PICTURES]
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const [, , library, executablePath, base, phase, pictures] = process.argv;
const { chromium } = await import(pathToFileURL(library).href);
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath, args: flags });
const troubles = [];

async function open(width, height, path = "") {
  const context = await browser.newContext({ viewport: { width, height } });
  const page = await context.newPage();
  page.on("console", (message) => { if (message.type() === "error") troubles.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => troubles.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => { troubles.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(base)) troubles.push(`request to ${request.url()}`); });
  await page.goto(base + path);
  return page;
}

// The test has pushed forty rows of each machine.
const last = {};
async function push(key, power) {
  last[key] = (last[key] ?? 40) + 1;
  const number = last[key];
  const at = new Date(Date.UTC(2026, 10, 18) + number * 600_000).toISOString().slice(0, 19);
  const value = power ?? 10 + 3 * Math.sin(number / 5);
  const row = { turbine: key, n: number, time: at, power: value, temperature: 40 + Math.cos(number / 3) };
  const answer = await fetch(`${base}feeds/north/rows`, { method: "POST", body: JSON.stringify(row) });
  assert.equal(answer.status, 202, await answer.text());
}

const tile = (page, name) => page.locator(".tile", { has: page.locator(".tile-name", { hasText: new RegExp(`^${name}$`) }) });
const turns = (page, name, health) => page.waitForFunction(
  ([wanted, state]) => [...document.querySelectorAll(".tile")].some((each) => each.querySelector(".tile-name").textContent === wanted && each.dataset.health === state),
  [name, health], { timeout: 30_000 });

async function first() {
  const page = await open(1600, 1000);
  const began = Date.now();
  await page.waitForSelector(".tile");
  console.log(`first tile after ${Date.now() - began} ms`);
  assert.equal(await page.locator(".tile").count(), 3);
  assert.equal(await page.title(), "Test farm");

  // The fan of a machine grows as rows come.
  await tile(page, "T1").click();
  await page.waitForSelector(".chart canvas");
  const label = () => page.locator(".chart").first().getAttribute("aria-label");
  const before = await label();
  assert.match(before, /Forecast for/);
  await push("T1");
  await page.waitForFunction((old) => document.querySelector(".chart").getAttribute("aria-label") !== old, before, { timeout: 30_000 });
  await page.getByRole("button", { name: "Ask" }).click();
  await page.waitForSelector(".percent");
  assert.match(await page.locator(".percent").textContent(), /%/);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".tile");

  // A fault turns the tile to alarm; it is acknowledged; the tile turns back.
  await turns(page, "T2", "ok");
  for (let n = 0; n < 3; n += 1) await push("T2", 500);
  await turns(page, "T2", "alarm");
  await page.fill("#by", "Ann");
  await page.locator("#by").blur();
  await page.getByRole("button", { name: /Acknowledge the alarm of T2/ }).click();
  await page.waitForSelector(".seen");
  await turns(page, "T2", "watch");
  for (let n = 0; n < 7; n += 1) await push("T2");
  await turns(page, "T2", "ok");

  // Names from a feed are text, whatever they hold.
  const hostile = "<img src=x onerror=alert(1)>=cmd|' /C calc'!A0\u202e";
  await push(hostile, 5);
  await push(hostile, 6);
  // Letters that turn others around are shown by their codes.
  const shown = hostile.replace("\u202e", "\\u202e");
  await page.waitForFunction((name) => [...document.querySelectorAll(".tile-name")].some((each) => each.textContent === name), shown, { timeout: 30_000 });
  await page.locator(".tile", { hasText: "onerror" }).click();
  await page.waitForFunction((name) => document.querySelector("#machine-name")?.textContent === name, shown);
  assert.equal(await page.locator("main img").count(), 0);

  await page.reload();
  await seen(page);
  await phone();
}

async function seen(page) {
  await page.locator("[data-which=all]").click();
  await page.waitForSelector(".seen");
  assert.match(await page.locator(".seen").first().textContent(), /Seen by Ann/);
}

// Weights of experts and relevance of inputs are drawn and said, as the interface has them.
async function shares() {
  const page = await open(1600, 1000);
  await page.locator(".tile").first().click();
  for (const name of ["weights", "relevance"]) {
    const card = page.locator(`[data-shares=${name}]`);
    await card.locator(".share").first().waitFor();
    const id = page.url().split("/").pop();
    const { [name]: found } = await (await fetch(`${base}feeds/south/machine?machine=${id}`)).json();
    const said = await card.locator(".share").evaluateAll((items) => items.map((item) => [item.children[1].textContent, item.children[2].textContent]));
    assert.deepEqual(Object.fromEntries(said), Object.fromEntries(found.names.map((each, k) => [each, `${(100 * found.values[k].at(-1)).toFixed(0)} %`])));
    const colours = await card.locator("canvas").evaluate((canvas) => {
      const pixels = new Uint32Array(canvas.getContext("2d").getImageData(canvas.width - 2, 0, 1, canvas.height).data.buffer);
      return new Set(pixels).size;
    });
    assert.ok(colours >= 2, `${name}: ${colours} colours`);
  }
}

// A feed without keys is one machine: it is opened at once, and there is no way back to others.
async function alone() {
  const page = await open(1600, 1000);
  await page.waitForSelector(".chart canvas");
  assert.equal(await page.locator("#machine-name").textContent(), "One");
  assert.equal(await page.locator(".back").count(), 0);
  assert.match(await page.locator("[aria-label=Within] option").last().textContent(), /^50 min, by \d\d:\d\d$/);
  // Feeds can be chosen on a phone, and hide nothing.
  const phone = await open(390, 844);
  await phone.waitForSelector(".chart canvas");
  const [title, choice] = [await phone.locator("#title").boundingBox(), await phone.locator("#feed").boundingBox()];
  assert.ok(choice.y >= title.y + title.height, "the choice of feeds hides the title");
  await phone.locator("#feed").selectOption("other");
  await phone.waitForSelector("#empty:not([hidden])");
  await open(1600, 1000, "docs");
}

async function phone() {
  const page = await open(390, 844);
  await page.waitForSelector(".tile");
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 390, `the page is ${width} pixels wide`);
  await page.getByRole("tab", { name: /Alarms/ }).click();
  await page.waitForSelector("#inbox h2", { state: "visible" });
  await page.getByRole("tab", { name: "Machines" }).click();
  await tile(page, "T1").click();
  await page.waitForSelector(".chart canvas");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 390);
  if (pictures) await page.screenshot({ path: `${pictures}/phone.png`, fullPage: true });
}

async function again() {
  const page = await open(1600, 1000);
  await page.waitForSelector(".tile");
  await seen(page);
  if (pictures) await page.screenshot({ path: `${pictures}/wall.png` });
}

try {
  await { first, again, shares, alone }[phase]();
  assert.deepEqual(troubles, []);
} finally {
  await browser.close();
}
