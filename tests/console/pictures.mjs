// Makes the pictures of the documentation: each page at 1280 and at 320 pixels, in docs/images/console/.
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { change, cliJson } from './cli.mjs';
import { smaller } from './smaller.mjs';

const folder = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'docs', 'images', 'console');
const BYTES_MAX = 80 * 1024;
const HEIGHT_MAX = { 1280: 1300, 320: 1400 };
const world = JSON.parse(process.env.CONSOLE_WORLD);
mkdirSync(folder, { recursive: true });

await change('trouble', ['pause', 'trouble', '1', '--for', '30m']);
const stuck = (await cliJson('trouble', ['leases', 'trouble'])).find((lease) => lease.stuck).shard;

// Name, fleet, route, what to wait for, what to do first.
const PAGES = [
  ['fleet', 'trouble', '/', '.strip a'],
  ['shard', 'trouble', `/shards/${stuck}`, '#why', (page) => page.getByText(/Observed for [6-9] s/).waitFor()],
  ['plugins', 'quakes', '/plugins', 'main tbody tr'],
  ['leases', 'quakes', '/leases', 'main tbody tr'],
  ['failed-batches', 'trouble', '/letters', 'main tbody tr'],
  ['history', 'trouble', '/history', 'main tbody tr'],
  ['commands', 'quakes', '/commands', '.command-list a'],
  ['pause', 'quakes', '/commands/pause?shards=1&shards=3&for=30m', 'form.command', async (page) => {
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    await page.getByLabel('Reason').fill('the database moves');
    await page.getByLabel('Reason').blur();
  }],
];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
let code = 0;
for (const [name, app, route, there, first] of PAGES) {
  for (const width of [1280, 320]) {
    const page = await (await browser.newContext({ viewport: { width, height: 600 } })).newPage();
    if (process.env.CONSOLE_ASSETS) {
      await page.route('**/console/**', (to) => {
        const file = new URL(to.request().url()).pathname.slice('/console/'.length) || 'index.html';
        return to.fulfill({ path: join(process.env.CONSOLE_ASSETS, file) });
      });
    }
    await page.goto(`${world[app].url}/console/#${route}`);
    await page.locator(there).first().waitFor();
    await page.getByText(/^As of|^All commands|^Commands$/).first().waitFor();
    if (first) await first(page);
    await page.evaluate(() => { document.activeElement?.blur(); scrollTo(0, 0); });
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    const path = join(folder, `${name}-${width}.png`);
    const picture = await page.screenshot({ fullPage: true, clip: { x: 0, y: 0, width, height: Math.min(height, HEIGHT_MAX[width]) } });
    writeFileSync(path, smaller(picture));
    const bytes = statSync(path).size;
    console.log(`${name}-${width}.png: ${bytes} bytes`);
    if (bytes > BYTES_MAX) code = 1;
    await page.context().close();
  }
}
await browser.close();
process.exit(code);
