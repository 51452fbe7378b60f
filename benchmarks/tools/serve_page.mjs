// Times the page: node serve_page.mjs PLAYWRIGHT CHROMIUM ADDRESS TIMES; milliseconds to the first tile, as JSON: by the
// page's own clock, from the begin of the navigation.
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
    await page.addInitScript(() => {
      const look = () => { if (document.querySelector(".tile")) globalThis.firstTile ??= performance.now(); };
      new MutationObserver(look).observe(document, { childList: true, subtree: true });
    });
    await page.goto(base, { waitUntil: "commit" });
    await page.waitForSelector(".tile");
    found.push(await page.evaluate(() => globalThis.firstTile));
    await context.close();
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
}
