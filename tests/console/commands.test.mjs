// Every command that changes something: shown first, done only with a reason, and its effect seen on the page and by the
// command line. These tests run one after the other, since they change the same fleet.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { doIt, dryRun, go, heading, open, until, world } from './browser.mjs';
import { call } from './api.mjs';
import { change, cliJson } from './cli.mjs';

const leases = (app = 'quakes') => cliJson(app, ['leases', app]);
const leaseOf = async (n, app = 'quakes') => (await leases(app)).find((lease) => Number(lease.shard.slice(-12)) === n);
const history = (app = 'quakes') => cliJson(app, ['history', app]);
const step = (page) => page.getByRole('table', { name: 'Steps' }).locator('tbody tr');
const inHistory = (deed, why, app) => until(`the history has ${deed}`, async () => (await history(app)).some((entry) => entry.deed === deed && entry.why === why));

describe('a command that changes something', () => {
  test('pause: shows each shard, changes nothing yet, then pauses the fleet', async (t) => {
    const fleet = await open(t);
    await fleet.locator('.strip a').first().waitFor();
    const page = await open(t);
    await page.getByRole('link', { name: 'Pause the fleet' }).click();
    await heading(page, 'pause');
    await dryRun(page);
    assert.equal(await step(page).count(), 4);
    assert.match(await step(page).first().textContent(), /delivers.*paused/);
    assert.ok((await cliJson('quakes', ['status', 'quakes'])).paused === null, 'nothing is changed by looking');
    await doIt(page, 'the database moves');
    await page.getByText(/^✓? ?Done by the hosts after/).waitFor();
    assert.match((await cliJson('quakes', ['status', 'quakes'])).paused, /the database moves/);
    await fleet.getByText(/All shards are paused: .*the database moves/).waitFor();
    await until('each cell says so', async () => (await fleet.locator('.strip a.v-paused').count()) === 4);
    await inHistory('pause', 'the database moves');
  });

  test('resume: ends the pause', async (t) => {
    const page = await open(t);
    await page.getByRole('link', { name: 'Resume' }).click();
    await heading(page, 'resume');
    await dryRun(page);
    await doIt(page, 'the database is back');
    assert.equal((await cliJson('quakes', ['status', 'quakes'])).paused, null);
    await go(page, '/');
    await until('no cell says so any more', async () => (await page.locator('.strip a').count()) === 4 && (await page.locator('.strip a.v-paused').count()) === 0);
  });

  test('pause of one shard for a time: from the page of the shard, which shows what is wanted', async (t) => {
    const page = await open(t, { route: '/shards/shardId-000000000001' });
    await page.getByRole('link', { name: 'Pause', exact: true }).click();
    await heading(page, 'pause');
    assert.equal(await page.locator('#arg-shards').inputValue(), 'shardId-000000000001');
    await page.locator('#arg-for').fill('30m');
    await dryRun(page);
    await doIt(page, 'incident 7');
    assert.match((await leaseOf(1)).wanted.join(), /incident 7/);
    await go(page, '/shards/shardId-000000000001');
    await page.getByRole('region', { name: 'Now' }).getByText(/incident 7/).first().waitFor();
    await page.getByRole('link', { name: 'Resume' }).click();
    await dryRun(page);
    await doIt(page, 'over');
    assert.deepEqual((await leaseOf(1)).wanted, []);
  });

  test('seek: delivers records again', async (t) => {
    const page = await open(t, { route: '/shards/shardId-000000000000' });
    await page.getByRole('link', { name: 'Seek' }).click();
    await page.locator('#arg-to').fill('horizon');
    await dryRun(page);
    assert.match(await step(page).first().textContent(), /record\(s\) delivered again/);
    await doIt(page, 'wrong totals since ten');
    await inHistory('seek', 'wrong totals since ten');
    await inHistory('sought', 'wrong totals since ten');
    await go(page, '/history');
    await page.getByRole('row').filter({ hasText: 'wrong totals since ten' }).first().waitFor();
  });

  test('release: hands the lease to another host', async (t) => {
    const before = await leaseOf(2);
    const to = before.owner === 'dev' ? 'quakes-b' : 'dev';
    const page = await open(t, { route: '/shards/shardId-000000000002' });
    await page.getByRole('link', { name: 'Release the lease' }).click();
    await page.getByLabel('--to').fill(to);
    await dryRun(page);
    await doIt(page, 'more memory');
    await inHistory('move', 'more memory');
    const moved = (await history()).some((entry) => entry.deed === 'move' && `${entry.shard} ${entry.details}`.includes(to));
    assert.ok(moved);
  });

  test('drain and its undoing: the host gives its leases away, and takes some again', async (t) => {
    const page = await open(t);
    await page.getByRole('link', { name: 'drain quakes-b' }).click();
    await heading(page, 'drain');
    assert.equal(await page.locator('#arg-worker').inputValue(), 'quakes-b');
    await dryRun(page);
    await doIt(page, 'a new kernel');
    // It gave them away; the other host takes them a moment later.
    await until('the other host has them', async () => (await leases()).every((lease) => lease.owner === 'dev'));
    await go(page, '/');
    await page.getByText('drained', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'undo drain quakes-b' }).click();
    assert.ok(await page.locator('#arg-undo').isChecked());
    await dryRun(page);
    await doIt(page, 'done');
    await until('it holds leases again', async () => (await leases()).some((lease) => lease.owner === 'quakes-b'));
  });

  test('skip: gives up a record that cannot be handled, and the shard moves on', async (t) => {
    const stuck = await leaseOf(2, 'trouble');
    const sequence = /at (\d{50,})/.exec(stuck.stuck)[1];
    const page = await open(t, { base: world.trouble.url, route: '/shards/shardId-000000000002' });
    await page.locator('.badge.v-stuck').first().waitFor();
    await page.getByRole('link', { name: 'Skip a record' }).click();
    await page.locator('#arg-first').fill(sequence);
    await page.locator('#arg-discard').check();
    await dryRun(page);
    await doIt(page, 'poison');
    assert.equal((await leaseOf(2, 'trouble')).checkpoint, sequence);
    await inHistory('skipped', 'poison', 'trouble');
    await go(page, '/shards/shardId-000000000002');
    await until('it is not stuck any more', async () => (await page.getByRole('region', { name: 'Now' }).locator('.v-stuck').count()) === 0 && (await page.getByRole('region', { name: 'Now' }).count()) === 1);
  });

  test('reload: has one host read its configuration again', async (t) => {
    const page = await open(t, { route: '/commands/reload?worker=quakes-b' });
    await heading(page, 'reload');
    await dryRun(page);
    await doIt(page, 'a new limit');
    await inHistory('reload', 'a new limit');
  });

  test('reset: sends a shard to where the application began', async (t) => {
    const page = await open(t, { route: '/shards/shardId-000000000003' });
    await page.getByRole('link', { name: 'Reset' }).click();
    await dryRun(page);
    assert.match(await step(page).first().textContent(), /horizon/);
    await doIt(page, 'bad data');
    await inHistory('reset', 'bad data');
  });

  test('state reset: drops what the plugin keeps', async (t) => {
    const state = async () => (await cliJson('totals', ['state', 'totals'])).filter((row) => row.bytes > 0).length;
    assert.ok(await state() > 0);
    const page = await open(t, { base: world.totals.url, route: '/commands/state%20reset' });
    await heading(page, 'state reset');
    await dryRun(page);
    await doIt(page, 'start over');
    await until('no state is left', async () => (await state()) === 0);
    await inHistory('reset-state', 'start over', 'totals');
  });

  test('delete: is refused while hosts are alive, and says who is', async (t) => {
    const page = await open(t, { base: world.totals.url, route: '/commands/delete?watch-for=1s' });
    await dryRun(page);
    await page.getByText(/somebody may be at work: dev/).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
  });

  test('pin and unpin: are done at once, and only by who says to know that', async (t) => {
    const page = await open(t, { route: '/plugins' });
    await page.getByRole('link', { name: /^pin version/ }).first().click();
    await heading(page, 'plugins');
    await page.locator('#arg-pin').fill('last-good');
    const button = page.getByRole('button', { name: 'Do it at once' });
    await button.click();
    assert.equal(await page.locator('.answer').count(), 0, 'the box is not ticked');
    await page.locator('#sure').check();
    await button.click();
    await page.locator('.answer').waitFor();
    await go(page, '/commands/plugins?unpin=true');
    await page.locator('#sure').check();
    await page.getByRole('button', { name: 'Do it at once' }).click();
    await page.locator('.answer').waitFor();
  });

  test('release of a version: what the host refuses is said in its words', async (t) => {
    const page = await open(t, { route: '/commands/plugins?release=0123456789ab' });
    await page.locator('#sure').check();
    await page.getByRole('button', { name: 'Do it at once' }).click();
    await page.getByText(/no quarantined version of quakes begins with 0123456789ab/).waitFor();
  });
});

describe('a form', () => {
  test('asks for a reason before anything is done', async (t) => {
    let applied = 0;
    const page = await open(t, { route: '/commands/pause?shards=1', before: (one) => one.on('request', (request) => { applied += /"apply":true/.test(request.postData() ?? '') ? 1 : 0; }) });
    await dryRun(page);
    const button = page.getByRole('button', { name: 'Do it' });
    await button.click();
    await page.getByLabel('Reason').fill('   ');
    await button.click();
    assert.equal(await page.getByRole('heading', { name: 'What it would do' }).count(), 1);
    assert.equal(applied, 0);
    assert.deepEqual((await leaseOf(1)).wanted, []);
    const response = await call(world.quakes.url, '/api/v1/commands/pause', { method: 'POST', body: { arguments: { application: 'quakes', apply: true } } });
    assert.equal(response.status, 400, 'the host wants one too');
  });

  for (const [name, alter] of [
    ['a text', (page) => page.locator('#arg-for').fill('1h')],
    ['a list', (page) => page.locator('#arg-shards').fill('1\n2')],
    ['a flag', (page) => page.locator('#arg-all-streams').check()],
  ]) {
    test(`withdraws the dry run when ${name} changes`, async (t) => {
      const page = await open(t, { route: '/commands/pause?shards=1' });
      await dryRun(page);
      await page.getByRole('button', { name: 'Do it' }).waitFor();
      await alter(page);
      assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
      await page.getByText('The arguments changed. Show what it would do again.').waitFor();
    });
  }

  test('sends one request however often the button is pressed', async (t) => {
    let applied = 0;
    const page = await open(t, { route: '/commands/pause?shards=1', before: (one) => one.on('request', (request) => { applied += /"apply":true/.test(request.postData() ?? '') ? 1 : 0; }) });
    await dryRun(page);
    await page.getByLabel('Reason').fill('pressed often');
    await page.evaluate(() => {
      const button = [...document.querySelectorAll('button')].find((one) => one.textContent === 'Do it');
      for (let n = 0; n < 5; n += 1) button.click();
    });
    await page.getByRole('heading', { name: 'What was done' }).waitFor();
    assert.equal(applied, 1);
    await change('quakes', ['resume', 'quakes']);
  });

  test('shows the command line that does the same, and copies it', async (t) => {
    const page = await open(t, { route: '/commands/pause?shards=1&for=30m', permissions: ['clipboard-read', 'clipboard-write'] });
    await dryRun(page);
    const line = await page.locator('.command-line').textContent();
    assert.match(line, /^shardmill pause quakes 1 --for 30m /);
    await page.getByRole('button', { name: 'Copy the command line' }).click();
    await page.getByText('copied').waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), line);
  });

  test('copies also where the browser has no clipboard for pages', async (t) => {
    const page = await open(t, { route: '/commands/status', before: (one) => one.addInitScript(() => { Object.defineProperty(navigator, 'clipboard', { value: undefined }); }) });
    await page.getByRole('button', { name: 'Show', exact: true }).click();
    await page.getByRole('button', { name: 'Copy the command line' }).click();
    await page.getByText('copied').waitFor();
  });

  test('says in words what the command line refuses', async (t) => {
    const page = await open(t, { route: '/commands/pause?for=soon' });
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    await page.getByText(/invalid value.*soon/).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
  });

  test('links each field with its help, and names what is required', async (t) => {
    const page = await open(t, { route: '/commands/drain' });
    const field = page.locator('#arg-worker');
    await field.waitFor();
    assert.ok(await field.evaluate((one) => one.required && document.getElementById(one.getAttribute('aria-describedby')).textContent.length > 0));
    assert.equal(await page.locator('#arg-wait').getAttribute('placeholder'), '15s');
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    assert.equal(await page.locator('.answer').count(), 0);
  });

  test('shows what a command that only looks answers, as the command line does', async (t) => {
    const status = await cliJson('quakes', ['status', 'quakes']);
    const page = await open(t, { route: '/commands/status' });
    await page.getByRole('button', { name: 'Show', exact: true }).click();
    await page.getByRole('heading', { name: 'Answer' }).waitFor();
    const words = await page.locator('.answer').innerText();
    for (const host of status.hosts) assert.ok(words.includes(host.worker));
    assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
  });
});

describe('two tabs at once', () => {
  test('see the change of the other', async (t) => {
    const [one, two] = [await open(t, { route: '/shards/shardId-000000000001' }), await open(t, { route: '/commands/pause?shards=1' })];
    await one.locator('#now').waitFor();
    await dryRun(two);
    await doIt(two, 'from the other tab');
    await one.getByText(/from the other tab/).first().waitFor();
    await one.getByRole('link', { name: 'Resume' }).waitFor();
    await change('quakes', ['resume', 'quakes', '1']);
    await until('the first tab sees that too', async () => (await one.getByRole('link', { name: 'Pause', exact: true }).count()) === 1);
  });

  test('may change the same shard: both are told, and the history has both', async (t) => {
    const tabs = [await open(t, { route: '/commands/pause?shards=1&wait=2s' }), await open(t, { route: '/commands/pause?shards=1&wait=2s' })];
    await Promise.all(tabs.map(dryRun));
    await Promise.all(tabs.map((page, n) => doIt(page, `tab ${n}`)));
    await inHistory('pause', 'tab 0');
    await inHistory('pause', 'tab 1');
    await change('quakes', ['resume', 'quakes', '1']);
  });
});
