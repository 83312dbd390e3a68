// Uses the page in a browser as a person would, and fails on any error, failed request or missing part.
//   node test/browser.mjs [--url http://127.0.0.1:8080/#token=...] [--out FOLDER] [--chromium PROGRAM]
// Without --url it starts the mock program, and tests losses, malformed messages and reconnecting as well. Against another
// program it stops nothing unless --stop is given.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { serve, TOKEN } from "../mock/server.mjs";

const { values: given } = parseArgs({
  options: {
    url: { type: "string" },
    out: { type: "string" },
    chromium: { type: "string" },
    stop: { type: "boolean", default: false },
  },
});
const CHROMIUM =
  given.chromium ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const OUT = given.out ?? mkdtempSync(join(tmpdir(), "shotline-page-"));
const LIMIT_MS = 60_000;
const DESKTOP = { width: 1440, height: 1000 };
const PHONE = { width: 360, height: 740 };

/** Opens a page that collects its errors. */
async function open(browser, url, options) {
  const context = await browser.newContext({ viewport: DESKTOP, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  const problems = [];
  page.on("console", (message) => message.type() === "error" && problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => problems.push(`request: ${request.url()} ${request.failure()?.errorText}`));
  page.on("response", (reply) => reply.status() >= 400 && problems.push(`status ${reply.status()}: ${reply.url()}`));
  await page.goto(url);
  await page.locator("header .badge").waitFor();
  return { page, problems, context };
}

async function shoot(page, name, isWhole = true) {
  await page.screenshot({ path: join(OUT, `${name}.png`), fullPage: isWhole });
}

/** Waits until the page draws pictures of the selected kind: something is on its canvas. */
async function waitForPicture(page) {
  await page.waitForFunction(() => {
    const failed = document.querySelector(".body > .problem");
    if (failed) throw new Error(failed.textContent);
    const canvas = document.querySelector("#picture canvas");
    if (!canvas || canvas.width === 0) return false;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size > 8;
  });
}

async function hasNoOverflow(page) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0, `the page is ${wide} pixels wider than the window`);
}

const selectedTab = (page) => page.locator('[role="tab"][aria-selected="true"]');

async function testPictures(page) {
  const tabs = page.locator('[role="tab"]');
  const count = await tabs.count();
  for (let index = 0; index < count; index++) {
    await tabs.nth(index).click();
    await waitForPicture(page);
    const fit = page.getByRole("button", { name: "Fit to the values" });
    if (await fit.count()) await fit.click();
    await shoot(page, `picture-${index + 1}`, false);
  }
  if (count === 0) return;
  await page.keyboard.press("1");
  assert.equal(await tabs.nth(0).getAttribute("aria-selected"), "true", "key 1 shows the first picture");
  if (count > 1) {
    await selectedTab(page).focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await tabs.nth(1).getAttribute("aria-selected"), "true", "the right arrow shows the next picture");
    await page.keyboard.press("1");
  }
  await waitForPicture(page);
  await testPause(page);
  await testSaving(page);
  await testBrightness(page);
}

async function testPause(page) {
  await page.locator("h1").click();
  await page.keyboard.press("Space");
  await page.locator(".facts", { hasText: "paused" }).waitFor();
  await page.keyboard.press("Space");
  await page.locator(".facts", { hasText: "pictures/s" }).waitFor();
}

async function testSaving(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("s")]);
  assert.match(download.suggestedFilename(), /-shot-\d+\.png$/);
  await download.saveAs(join(OUT, "saved.png"));
}

async function testBrightness(page) {
  const range = page.getByLabel("Range");
  if (!(await range.count())) return;
  await page.keyboard.press("p");
  await range.fill("0.6");
  await page.getByLabel("Gain").fill("0.1");
  await waitForPicture(page);
  await shoot(page, "palette", false);
  await page.getByRole("button", { name: "Reset" }).click();
  await page.locator("h1").click();
  await page.keyboard.press("p");
}

async function testSections(page) {
  const folds = page.locator(".fold");
  for (let index = 0; index < (await folds.count()); index++) {
    const isOpen = await folds.nth(index).getAttribute("aria-expanded");
    await folds.nth(index).click();
    assert.notEqual(await folds.nth(index).getAttribute("aria-expanded"), isOpen);
    await folds.nth(index).click();
  }
  await page.locator("#counters .fold").click();
  const rows = page.locator("#counters tbody tr");
  await rows.filter({ hasNotText: "dropped" }).first().waitFor();
  await page.getByLabel("Search counters").fill("dropped");
  await rows.filter({ hasNotText: "dropped" }).first().waitFor({ state: "detached" });
  assert.ok((await rows.count()) > 0, "the search finds dropped packets");
  await page.getByLabel("Filter messages").fill("no such message");
  await page.getByText(/No messages?( matches)?\./).waitFor();
  await page.getByLabel("Filter messages").fill("");
  const map = page.locator(".strip canvas").first();
  if (await map.count()) {
    await map.hover();
    await page.locator(".under", { hasText: /shot/ }).first().waitFor();
  }
}

async function testKeys(page) {
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await shoot(page, "help", false);
  await page.keyboard.press("Escape");
  // A closed one has no role any more, but takes keys until it is removed.
  await page.locator("dialog").waitFor({ state: "detached" });
  const before = await page.evaluate(() => document.documentElement.dataset.theme);
  await page.keyboard.press("t");
  await page.keyboard.press("t");
  assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), before, "t changes the colours");
  await page.keyboard.press("t");
}

async function testControls(page, mayStop) {
  assert.equal(await page.evaluate(() => location.hash), "", "the token is not in the address");
  const trigger = page.locator("button.trigger");
  if (await trigger.count()) {
    await trigger.click();
    await page.locator(".result").waitFor();
  }
  if (!mayStop) return;
  await page.locator(".controls > button.stop").click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.locator(".controls > button.stop").click();
  await shoot(page, "confirmation", false);
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.locator(".result.done").waitFor();
  await page.locator(".badge.ended").waitFor();
  await shoot(page, "ended");
  await testStart(page);
}

/** Start takes a number, and only one in its range. */
async function testStart(page) {
  const start = page.locator(".controls > button.start");
  if (!(await start.count())) return;
  await start.click();
  const dialog = page.getByRole("dialog");
  const samples = dialog.getByRole("spinbutton");
  await samples.fill("0");
  await dialog.getByRole("button", { name: "Start" }).click();
  assert.ok(await samples.evaluate((input) => !input.validity.valid), "0 samples are refused");
  await samples.fill("512");
  await shoot(page, "start", false);
  await dialog.getByRole("button", { name: "Start" }).click();
  await page.locator(".result.done", { hasText: "start" }).waitFor();
}

async function testLayouts(browser, url) {
  for (const [name, options] of Object.entries({
    "phone-light": { viewport: PHONE, colorScheme: "light", isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
    "phone-dark": { viewport: PHONE, colorScheme: "dark", isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
    "tablet-light": { viewport: { width: 820, height: 1180 }, colorScheme: "light" },
    "desktop-dark": { viewport: DESKTOP, colorScheme: "dark" },
    "desktop-wide": { viewport: { width: 2200, height: 1200 }, colorScheme: "light", reducedMotion: "reduce" },
  })) {
    const { page, problems, context } = await open(browser, url, options);
    await page.locator(".loss strong", { hasNotText: "No numbers" }).waitFor();
    if (await page.locator('[role="tab"]').count()) await waitForPicture(page);
    await page.waitForFunction(
      () => document.querySelectorAll(".rate").length === 0 || document.querySelector(".u-over"),
    );
    await page.waitForTimeout(1500); // some points in the curves
    await hasNoOverflow(page);
    await shoot(page, name);
    assert.deepEqual(problems, []);
    await context.close();
  }
}

/** The first picture must not be requested while it cannot be seen. */
async function testHiddenTab(page) {
  const sent = [];
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => sent.push(payload)));
  await page.reload();
  await waitForPicture(page);
  await page.evaluate(() => {
    Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await until(() => sent.at(-1) === '{"watch":[]}', "an empty watch list of a hidden tab");
  await page.reload();
  await waitForPicture(page);
}

async function until(condition, what) {
  const end = Date.now() + LIMIT_MS;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`not reached: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** What only the mock program does. */
async function testFaults(browser) {
  const first = await serve({ isMalformed: true, seconds: 600 });
  const url = `http://127.0.0.1:${first.port}/`;
  const { page, problems, context } = await open(browser, url, {});
  await page.locator("footer .problem", { hasText: "malformed" }).waitFor();
  await waitForPicture(page);
  assert.deepEqual(problems, []);
  await page.locator("button.trigger").click();
  await page.getByRole("textbox", { name: "Token" }).fill("wrong");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.locator(".result.failed").waitFor();
  await page.locator("button.trigger").click();
  await page.getByRole("textbox", { name: "Token" }).fill(TOKEN);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.locator(".result.done").waitFor();
  await first.close();
  await page.locator(".badge.lost").waitFor();
  await shoot(page, "connection-lost", false);
  const second = await serve({ port: first.port, hasLoss: false });
  await page.locator(".badge.running").waitFor();
  await page.locator(".loss.none").waitFor();
  await waitForPicture(page);
  await shoot(page, "no-loss", false);
  await context.close();
  await second.close();
}

async function main() {
  mkdirSync(OUT, { recursive: true });
  const server = given.url ? null : await serve({ seconds: 120 });
  const url = given.url ?? `http://127.0.0.1:${server.port}/#token=${TOKEN}`;
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const { page, problems } = await open(browser, url, { colorScheme: "light" });
    if (await page.locator('[role="tab"]').count()) await waitForPicture(page);
    await shoot(page, "desktop-light");
    await testPictures(page);
    await testSections(page);
    await testKeys(page);
    await testHiddenTab(page);
    await hasNoOverflow(page);
    await testLayouts(browser, url);
    assert.deepEqual(problems, []);
    await testControls(page, given.stop || !given.url);
    // The page tries to reach a program that has ended, which the browser reports.
    assert.deepEqual(
      problems.filter((problem) => !problem.startsWith("console: WebSocket connection")),
      [],
    );
    if (!given.url) await testFaults(browser);
  } finally {
    await browser.close();
    await server?.close();
  }
  console.log(`the page works; pictures of it are in ${OUT}`);
}

await main();
