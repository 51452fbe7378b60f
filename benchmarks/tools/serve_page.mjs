// Times the page: node serve_page.mjs PLAYWRIGHT CHROMIUM ADDRESS TIMES; milliseconds to the first tile, as JSON.
import { pathToFileURL } from "node:url";

const [, , library, executablePath, base, times] = process.argv;
const { chromium } = await import(pathToFileURL(library).href);
const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
const browser = await chromium.launch({ executablePath, args: flags });
const found = [];
try {
  for (let n = 0; n < Number(times); n += 1) {
    // A context of its own has no cache.
    const context = await browser.newContext({ viewport: { width: 1600, height: 900 } });
    const page = await context.newPage();
    const began = performance.now();
    await page.goto(base, { waitUntil: "commit" });
    await page.waitForSelector(".tile");
    found.push(performance.now() - began);
    await context.close();
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}
