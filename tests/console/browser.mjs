// Pages of the console in a browser that watches what they must never do.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after } from 'node:test';
import { chromium } from 'playwright-core';
import { until } from './cli.mjs';

export const world = JSON.parse(process.env.CONSOLE_WORLD);
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 60_000);
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let launched = null;
export const browser = () => {
  launched ??= chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
  return launched;
};
after(async () => (await launched)?.close());

// For work on the pages: with CONSOLE_ASSETS, they are taken from that folder instead of from the binary, with the
// headers that the host sends.
const KINDS = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
const sent = new Map();
const serveAssets = (context, base) => context.route(`${base}/console/**`, async (route) => {
  const name = new URL(route.request().url()).pathname.slice('/console/'.length) || 'index.html';
  if (!sent.has(base)) sent.set(base, Object.fromEntries((await fetch(`${base}/console/`)).headers));
  const body = readFileSync(join(process.env.CONSOLE_ASSETS, name));
  await route.fulfill({ status: 200, headers: { ...sent.get(base), 'content-length': String(body.length), 'content-type': KINDS[name.split('.').pop()] }, body });
});

// Pages with the same options share a context, as tabs of one window do: a new one takes longer than most tests.
const contexts = new Map();
const contextOf = (options, base) => {
  const key = JSON.stringify([options, process.env.CONSOLE_ASSETS && base]);
  if (!contexts.has(key)) {
    contexts.set(key, browser().then((one) => one.newContext(options)).then(async (context) => {
      if (process.env.CONSOLE_ASSETS) await serveAssets(context, base);
      return context;
    }));
  }
  return contexts.get(key);
};

// Opens a page at a route. When the test ends, nothing may have gone wrong in it: no error, no violation of the policy,
// no request to elsewhere.
export const open = async (t, { base = world.quakes.url, route = '/', width = 1280, height = 900, token = null, before = null, ...more } = {}) => {
  const context = await contextOf({ viewport: { width, height }, ...more }, base);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (/Content Security Policy|TrustedHTML|Trusted Type/i.test(message.text())) wrong.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${base}/`)) wrong.push(`a request to ${request.url()}`);
  });
  page.wrong = wrong;
  t.after(async () => {
    const isBroken = page.isClosed() ? false : await page.evaluate(() => window.broken).catch(() => false);
    await page.close();
    assert.deepEqual(wrong, []);
    assert.ok(!isBroken, 'a script of a record ran');
  });
  if (token) await page.addInitScript((text) => { if (location.protocol === 'http:') sessionStorage.setItem('shardmill-token', text); }, token);
  if (before) await before(page);
  await page.goto(`${base}/console/#${route}`);
  return page;
};

// Goes to a route as a link would, without loading the page again.
export const go = (page, route) => page.evaluate((hash) => { location.hash = hash; }, `#${route}`);

export const heading = (page, name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
export const text = (page, words) => page.getByText(words).first().waitFor();

// What axe finds, with where.
export const axe = async (page) => {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const found = await window.axe.run(document, { runOnly: tags });
    return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`).slice(0, 3).join(' | ')}`);
  });
};

// Whether the page is wider than the window.
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

export const focused = (page) => page.evaluate(() => {
  const at = document.activeElement;
  return at ? (at.getAttribute('aria-label') || at.textContent || at.id).trim() : '';
});

// Presses a key until the element with the focus is like that.
export const pressUntil = async (page, key, isThere, most = 200) => {
  for (let n = 0; n < most; n += 1) {
    await page.keyboard.press(key);
    if (isThere(await focused(page))) return;
  }
  assert.fail(`${key} never led there`);
};

export { until };

// Fills a form, shows what it would do, gives a reason and does it.
export const dryRun = async (page) => {
  await page.getByRole('button', { name: 'Show what it would do' }).click();
  await page.getByRole('heading', { name: 'What it would do' }).waitFor();
};
export const doIt = async (page, why) => {
  await page.getByLabel('Reason').fill(why);
  await page.getByRole('button', { name: 'Do it' }).click();
  await page.getByRole('heading', { name: 'What was done' }).waitFor();
};

// Makes a document hidden or visible, as when the reader looks at another tab.
export const setHidden = (page, isHidden) => page.evaluate((is) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => is });
  Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => (is ? 'hidden' : 'visible') });
  document.dispatchEvent(new Event('visibilitychange'));
}, isHidden);
