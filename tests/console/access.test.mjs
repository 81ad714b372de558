// Who may see and do what: signing in, and each right.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { call } from './api.mjs';
import { go, heading, open, until, world } from './browser.mjs';
import { cli, startHost } from './cli.mjs';

const base = world.quakes.guarded;
const { tokens } = world;

const signIn = async (page, token) => {
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
};

test('without a token a guarded host shows nothing but the page to sign in', async (t) => {
  const page = await open(t, { base, route: '/leases' });
  await page.getByLabel('Token').waitFor();
  assert.equal(await page.getByRole('table').count(), 0);
  for (const path of ['/api/v1/session', '/api/v1/fleet?application=quakes', '/api/v1/commands/leases?application=quakes']) {
    assert.equal((await call(base, path)).status, 401, path);
  }
});

test('a wrong token is refused in words, and the field keeps the focus', async (t) => {
  const page = await open(t, { base });
  await signIn(page, 'wrong-token-0123456789');
  await page.getByText('The host does not know this token.').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'token');
  await signIn(page, tokens.viewer);
  await heading(page, 'Fleet');
});

test('a right token leads to the page that was asked for, and it stays in this tab', async (t) => {
  const page = await open(t, { base, route: '/leases' });
  await signIn(page, tokens.operator);
  await heading(page, 'Leases');
  await page.getByText('you are operator').waitFor();
  await page.reload();
  await heading(page, 'Leases');
  const stored = await page.evaluate(() => [Object.keys(sessionStorage), Object.keys(localStorage), document.cookie]);
  assert.deepEqual(stored, [['shardmill-token'], [], '']);
  const other = await open(t, { base });
  await other.getByLabel('Token').waitFor();
});

test('signing out forgets the token', async (t) => {
  const page = await open(t, { base, token: null });
  await signIn(page, tokens.viewer);
  await heading(page, 'Fleet');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

test('a token is never part of an address', async (t) => {
  const addresses = [];
  const page = await open(t, { base, before: (one) => one.on('request', (request) => addresses.push(request.url())) });
  await signIn(page, tokens.operator);
  await heading(page, 'Fleet');
  await page.locator('.strip a').first().waitFor();
  addresses.push(page.url());
  assert.ok(addresses.every((address) => !address.includes(tokens.operator)));
});

// For each right: commands that are offered, and those that are not.
const RIGHTS = [
  ['viewer', ['status', 'leases', 'explain', 'history'], ['debug', 'pause', 'seek', 'reset', 'delete', 'state reset']],
  ['reader', ['leases', 'debug'], ['pause', 'drain', 'reset', 'delete']],
  ['operator', ['leases', 'pause', 'resume', 'seek', 'skip', 'drain', 'release'], ['debug', 'reset', 'delete', 'state reset']],
  ['admin', ['pause', 'reset', 'delete', 'state reset'], ['debug']],
];

describe('what the session may not do is not offered', () => {
  for (const [who, may, mayNot] of RIGHTS) {
    test(`to the ${who}`, async (t) => {
      const page = await open(t, { base, token: tokens[who], route: '/commands' });
      await heading(page, 'Commands');
      const names = await page.locator('.command-list code').allTextContents();
      for (const name of may) assert.ok(names.includes(name), `${name} is offered`);
      for (const name of mayNot) assert.ok(!names.includes(name), `${name} is not offered`);
      await go(page, `/commands/${encodeURIComponent(mayNot[0])}`);
      await page.getByText('There is no such command here, or you may not run it.').waitFor();
      assert.equal(await page.getByRole('form').count(), 0);
      const mayOperate = may.includes('pause');
      await go(page, '/');
      await page.locator('.strip a').first().waitFor();
      assert.equal(await page.getByRole('link', { name: 'Pause the fleet' }).count(), mayOperate ? 1 : 0);
      assert.equal(await page.getByRole('link', { name: /^drain / }).count() > 0, mayOperate);
      assert.equal(await page.getByRole('link', { name: 'Failed batches' }).count(), may.includes('debug') ? 1 : 0);
      await go(page, '/shards/shardId-000000000000');
      await page.locator('#why').waitFor();
      assert.equal(await page.getByRole('link', { name: 'Pause', exact: true }).count(), mayOperate ? 1 : 0);
      assert.equal(await page.getByRole('link', { name: 'Reset' }).count(), may.includes('reset') ? 1 : 0);
      await go(page, '/plugins');
      await page.locator('main tbody tr').first().waitFor();
      assert.equal(await page.getByRole('link', { name: /^pin / }).count() > 0, mayOperate);
    });

    test(`and refused by the host to the ${who}`, async () => {
      for (const name of mayNot) {
        const response = await call(base, `/api/v1/commands/${encodeURIComponent(name)}`, { token: tokens[who], method: 'POST', body: { arguments: { [name === 'debug' ? 'what' : 'application']: 'quakes' } } });
        assert.equal(response.status, 403, name);
        assert.match((await response.json()).problem, /right/);
      }
    });
  }
});

test('a right that is taken away while the form is open is said in words', async (t) => {
  const page = await open(t, { base, token: tokens.operator, route: '/commands/pause?shards=0' });
  await heading(page, 'pause');
  await page.evaluate((token) => sessionStorage.setItem('shardmill-token', token), tokens.viewer);
  await page.getByRole('button', { name: 'Show what it would do' }).click();
  await page.getByText('You may not do this:').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
});

test('a token that is withdrawn leads to the page to sign in', async (t) => {
  const page = await open(t, { base, token: tokens.viewer });
  await page.locator('.strip a').first().waitFor();
  await page.evaluate(() => sessionStorage.setItem('shardmill-token', 'withdrawn-0123456789'));
  await page.getByText('The host does not know this token.').waitFor();
  await page.getByLabel('Token').waitFor();
});

// These share a host that is killed and started again at the same address.
describe('a host of its own', () => {
  const { config, port } = world.spare;
  const own = `http://127.0.0.1:${port}`;
  const start = () => startHost('spare', ['run', '--config', config, '--local=data'], join(world.folder, 'quakes'), port);

  test('shows since when data are out of date while it is killed, and goes on by itself when it is back', async (t) => {
    let host = await start();
    t.after(() => host.stop());
    const page = await open(t, { base: own });
    await page.locator('.strip a').first().waitFor();
    await host.kill();
    await page.getByText('The host does not answer.').first().waitFor();
    await page.getByText(/This data is from \d\d:\d\d:\d\d UTC/).waitFor();
    assert.ok(await page.locator('.strip a').count() > 0, 'what was known is still shown');
    await go(page, '/leases');
    await page.getByText('The host does not answer.').first().waitFor();
    host = await start();
    await page.getByText(/^As of/).waitFor();
    await page.locator('main tbody tr').first().waitFor();
    await go(page, '/');
    await page.locator('.strip a').first().waitFor();
  });

  test('opened while it is down says so, and begins by itself', async (t) => {
    const host = await start();
    t.after(() => host.stop());
    const page = await open(t, { base: own });
    await page.locator('.strip a').first().waitFor();
    const before = await until('a request', () => page.evaluate(() => performance.timeOrigin));
    await page.route('**/api/v1/session', (route) => route.abort());
    await page.reload();
    await page.getByText('The host does not answer.').waitFor();
    await page.unroute('**/api/v1/session');
    await heading(page, 'Fleet');
    assert.notEqual(await page.evaluate(() => performance.timeOrigin), before);
  });

  test('that lets everybody look lets who signs in do more', async (t) => {
    const host = await start();
    t.after(() => host.stop());
    const page = await open(t, { base: own });
    await page.locator('.strip a').first().waitFor();
    assert.equal(await page.getByRole('link', { name: 'Pause the fleet' }).count(), 0);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await signIn(page, tokens.operator);
    await page.getByText('you are operator').waitFor();
    await page.getByRole('link', { name: 'Pause the fleet' }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'Pause the fleet' }).count(), 0);
  });

  test('that is gone leaves an application that can be deleted, with its name typed once more', async (t) => {
    const page = await open(t, { route: '/commands/delete?application=spare&watch-for=4s' });
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    await page.getByRole('heading', { name: 'What it would do' }).waitFor();
    await page.getByLabel('Reason').fill('it is not needed');
    await page.getByRole('button', { name: 'Do it' }).click();
    await page.getByText(/--confirm/).first().waitFor();
    await page.getByLabel('--confirm').fill('spare');
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    await page.getByLabel('Reason').fill('it is not needed');
    await page.getByRole('button', { name: 'Do it' }).click();
    await page.getByRole('heading', { name: 'What was done' }).waitFor();
    await assert.rejects(cli('quakes', ['leases', 'spare', '--json']), /there is no lease table spare/);
  });
});
