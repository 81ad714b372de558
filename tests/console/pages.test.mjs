// Every page, wide and narrow: nothing that axe finds, nothing wider than the screen, everything there.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { axe, go, heading, open, overflow, until, world } from './browser.mjs';
import { cliJson } from './cli.mjs';

const stuckShard = async () => (await cliJson('trouble', ['leases', 'trouble'])).find((lease) => lease.stuck).shard;
const recording = async (page) => {
  await go(page, '/letters');
  return page.locator('main table a').first().getAttribute('href');
};

// Each page with what it must show.
const PAGES = [
  ['the fleet', 'quakes', '/', 'Fleet', '.strip a'],
  ['the fleet in trouble', 'trouble', '/', 'Fleet', '#attention ~ * tbody tr'],
  ['a shard', 'quakes', '/shards/shardId-000000000000', 'Shard 0', '#why'],
  ['the plugins', 'quakes', '/plugins', 'Plugins', 'main tbody tr'],
  ['the failed batches', 'trouble', '/letters', 'Failed batches', 'main tbody tr'],
  ['the history', 'trouble', '/history', 'History', 'main table'],
  ['the leases', 'quakes', '/leases', 'Leases', 'main tbody tr'],
  ['the commands', 'quakes', '/commands', 'Commands', '.command-list a'],
  ['the status of this host', 'quakes', '/host', 'This host', '.tree li'],
  ['the form of seek', 'quakes', '/commands/seek?shards=1&to=-2h', 'seek', 'form.command'],
  ['the form of plugins', 'quakes', '/commands/plugins?rollback=true', 'plugins', '#sure'],
  ['a page that is not there', 'quakes', '/nowhere', 'No such page', '.lead'],
];

for (const width of [1280, 320]) {
  describe(`at ${width} pixels`, () => {
    for (const [name, app, route, title, there] of PAGES) {
      test(`${name} can be used by everybody and fits`, async (t) => {
        const page = await open(t, { base: world[app].url, route, width });
        await heading(page, title);
        await page.locator(there).first().waitFor();
        assert.deepEqual(await axe(page), []);
        assert.ok(await overflow(page) <= 0, 'it is wider than the screen');
      });
    }

    test('a stuck shard can be read by everybody and fits', async (t) => {
      const shard = await stuckShard();
      const page = await open(t, { base: world.trouble.url, route: `/shards/${shard}`, width, colorScheme: 'dark' });
      await page.locator('#why').waitFor();
      await page.locator('.badge.v-stuck').first().waitFor();
      assert.deepEqual(await axe(page), []);
      assert.ok(await overflow(page) <= 0, 'it is wider than the screen');
    });

    test('a failed batch that was run again can be read by everybody and fits', async (t) => {
      const page = await open(t, { base: world.trouble.url, width });
      await go(page, (await recording(page)).slice(1));
      await page.getByRole('button', { name: 'Run it again' }).click();
      await page.getByRole('heading', { name: 'Run again' }).waitFor();
      assert.deepEqual(await axe(page), []);
      assert.ok(await overflow(page) <= 0, 'it is wider than the screen');
    });

    test('the page to sign in can be used by everybody and fits', async (t) => {
      const page = await open(t, { base: world.quakes.guarded, width });
      await page.getByLabel('Token').waitFor();
      assert.deepEqual(await axe(page), []);
      assert.ok(await overflow(page) <= 0, 'it is wider than the screen');
    });

    test('a dry run can be read by everybody and fits', async (t) => {
      const page = await open(t, { route: '/commands/pause?shards=0', width, colorScheme: 'dark' });
      await page.getByRole('button', { name: 'Show what it would do' }).click();
      await page.getByLabel('Reason').waitFor();
      assert.deepEqual(await axe(page), []);
      assert.ok(await overflow(page) <= 0, 'it is wider than the screen');
    });
  });
}

test('every page has its landmarks, one heading of the first level and its own title', async (t) => {
  const page = await open(t);
  const titles = new Set();
  for (const [, , route, title] of PAGES.filter(([, app]) => app === 'quakes')) {
    await go(page, route);
    await heading(page, title);
    assert.equal(await page.locator('h1').count(), 1);
    for (const landmark of ['banner', 'navigation', 'main']) assert.equal(await page.getByRole(landmark).count(), 1, `${route}: ${landmark}`);
    titles.add(await page.title());
  }
  assert.ok(titles.size >= 8, [...titles].join(', '));
});

test('dark colours follow the setting of the reader', async (t) => {
  const back = async (colorScheme) => {
    const page = await open(t, { colorScheme });
    await heading(page, 'Fleet');
    return page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  };
  const [light, dark] = [await back('light'), await back('dark')];
  assert.notEqual(light, dark);
});

test('nothing moves for who wants less motion', async (t) => {
  const page = await open(t, { reducedMotion: 'reduce' });
  await page.locator('.strip a').first().waitFor();
  const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter((one) => {
    const style = getComputedStyle(one);
    return style.animationName !== 'none' || style.transitionDuration.split(',').some((time) => parseFloat(time) > 0);
  }).length);
  assert.equal(moving, 0);
});

test('no verdict is told by colour alone', async (t) => {
  const page = await open(t, { base: world.trouble.url });
  const cells = page.locator('.strip a');
  await cells.first().waitFor();
  for (const cell of await cells.all()) {
    assert.ok((await cell.textContent()).trim().length > 0);
    assert.match(await cell.getAttribute('aria-label'), /^shard \d+: [a-z ]+, (on .+|no host)$/);
  }
});

test('the page of the fleet agrees with the command', async (t) => {
  const page = await open(t);
  const leases = await cliJson('quakes', ['leases', 'quakes']);
  await until('each shard has its cell', async () => (await page.locator('.strip a').count()) === leases.length);
  for (const lease of leases) await page.getByRole('link', { name: new RegExp(`^shard ${Number(lease.shard.slice(-12))}: `) }).waitFor();
  for (const host of ['dev', 'quakes-b']) await page.getByRole('button', { name: host, exact: true }).waitFor();
});

test('what is stuck comes first, with why and what it waits for', async (t) => {
  const page = await open(t, { base: world.trouble.url });
  const first = page.getByRole('region', { name: /attention, the worst first/ }).locator('tbody tr').first();
  await first.waitFor();
  const words = await first.textContent();
  assert.match(words, /stuck/);
  assert.match(words, /not a GeoJSON feature/);
  const leases = await cliJson('trouble', ['leases', 'trouble']);
  const title = await first.getByRole('link').first().getAttribute('title');
  assert.ok(leases.find((lease) => lease.shard === title).stuck);
  await until('the page says what it waits for', async () => /the plugin/.test(await first.textContent()));
});

test('shards can be chosen by verdict, by host and by number', async (t) => {
  const page = await open(t);
  await page.locator('.strip a').first().waitFor();
  await page.getByLabel('Host', { exact: true }).selectOption('quakes-b');
  await until('only its shards are shown', async () => {
    const labels = await page.locator('.strip a').evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
    return labels.length > 0 && labels.every((label) => label.endsWith('on quakes-b'));
  });
  await page.getByRole('button', { name: 'Show all', exact: true }).click();
  await page.getByLabel('Find').fill('shardId-000000000002');
  await until('one shard is shown', async () => (await page.locator('.strip a').count()) === 1);
  await page.getByRole('button', { name: 'Show all', exact: true }).click();
  const verdict = page.getByRole('group', { name: 'Show only shards that are' }).getByRole('button').first();
  await verdict.click();
  assert.equal(await verdict.getAttribute('aria-pressed'), 'true');
});

test('a shard shows its facts as the command explains them', async (t) => {
  const explained = await cliJson('quakes', ['explain', 'quakes', '1', '--watch-for', '0s']);
  const page = await open(t, { route: '/shards/1' });
  await heading(page, 'Shard 1');
  await page.getByText(explained.shard).first().waitFor();
  await page.getByText('Why it moves, or not').waitFor();
  const why = page.getByRole('region', { name: 'Why it moves, or not' });
  for (const { kind } of explained.why) await why.getByText(kind, { exact: true }).first().waitFor();
  await page.getByRole('img', { name: /Progress since the page was opened\. Lag: now/ }).waitFor();
  await page.getByRole('region', { name: 'Lineage' }).getByText('No shard was split or merged').waitFor();
});

test('a shard that is not there is said to be not there', async (t) => {
  const page = await open(t, { route: '/shards/shardId-000000009999' });
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.locator('.alert.bad').first().waitFor();
});

test('the plugins show each host and its version', async (t) => {
  const [report] = [await cliJson('quakes', ['plugins', 'quakes'])].flat();
  const page = await open(t, { route: '/plugins' });
  const table = page.getByRole('table', { name: 'Versions by host of quakes' });
  for (const host of report.hosts) {
    const row = table.getByRole('row').filter({ hasText: host.host }).first();
    await row.locator('code', { hasText: host.versions[0].digest.slice(0, 12) }).waitFor();
  }
});

test('the leases show whole checkpoints, sorted and filtered as asked', async (t) => {
  const leases = await cliJson('quakes', ['leases', 'quakes']);
  const page = await open(t, { route: '/leases' });
  const rows = page.locator('main tbody tr');
  await until('each lease has its row', async () => (await rows.count()) === leases.length);
  for (const lease of leases) await page.getByText(lease.checkpoint, { exact: true }).first().waitFor();
  const shards = () => rows.evaluateAll((all) => all.map((row) => row.querySelector('a').title));
  const up = await shards();
  const sort = page.getByRole('button', { name: 'Shard', exact: false }).first();
  await sort.click();
  assert.deepEqual(await shards(), [...up].reverse());
  assert.equal(await page.getByRole('columnheader', { name: /^Shard/ }).getAttribute('aria-sort'), 'descending');
  await page.getByRole('button', { name: 'Owner' }).click();
  const owners = await rows.evaluateAll((all) => all.map((row) => row.cells[1].textContent.trim()));
  assert.deepEqual(owners, [...owners].sort());
  await page.getByLabel('Filter').fill('quakes-b');
  await until('only its leases are shown', async () => (await rows.count()) === leases.filter((lease) => lease.owner === 'quakes-b').length);
  await page.getByLabel('Filter').fill('nothing is like this');
  await page.getByText('No lease matches.').waitFor();
});
