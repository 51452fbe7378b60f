// Takes the pictures of the page: node page.mjs PLAYWRIGHT CHROMIUM ADDRESS FOLDER; docs/figures.py calls it.
import { pathToFileURL } from "node:url";

const [, , library, executablePath, base, folder] = process.argv;
const { chromium } = await import(pathToFileURL(library).href);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });

async function open(width, height, deviceScaleFactor) {
  const context = await browser.newContext({ viewport: { width, height }, deviceScaleFactor, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(base);
  await page.waitForSelector(".tile");
  return page;
}

try {
  const wall = await open(1600, 900, 1);
  // The first fault of the farm, a loose contact of a thermometer, is that of T06.
  await wall.locator(".tile[data-health=alarm]", { hasText: "T06" }).waitFor({ timeout: 180_000 });
  // A few rows more: one reading says little.
  await wall.waitForTimeout(5000);
  await wall.screenshot({ path: `${folder}/serve-wall.png` });
  const phone = await open(390, 844, 1.5);
  await phone.locator(".tile[data-health=ok]").first().click();
  await phone.waitForSelector(".chart canvas");
  await phone.waitForTimeout(1500);
  await phone.screenshot({ path: `${folder}/serve-phone.png` });
} finally {
  await browser.close();
}
