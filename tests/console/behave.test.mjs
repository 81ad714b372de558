// How pages behave: keyboard, addresses, polls, hostile content, the policy, and a thousand shards.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { axe, focused, go, heading, open, overflow, pressUntil, setHidden, until, world } from './browser.mjs';
import { change, cliJson } from './cli.mjs';
import { HARMLESS, HOSTILE } from './hostile.mjs';

const shardId = (n) => `shardId-${String(n).padStart(12, '0')}`;

// An answer of /api/v1/fleet as a large application would give it.
const fleetOf = (shards, hosts, more = () => ({})) => ({
  application: 'quakes', stream: 'quakes', 'at-ms': Date.now(), paused: null, 'bad-rows': [], 'hosts-unknown': null,
  counts: { open: shards, finished: 0, held: shards, paused: 0, stuck: 0 },
  hosts: [...Array(hosts).keys()].map((n) => ({ worker: `host-${n}`, leases: shards / hosts, states: n === 0 ? ['leader'] : [], troubles: [] })),
  shards: [...Array(shards).keys()].map((n) => ({
    shard: shardId(n), owner: `host-${n % hosts}`, verdict: 'moving', because: null, 'waits-for': null, 'millis-behind-latest': n, 'settled-arrival-ms': Date.now(),
    'bytes-per-second': n, 'state-percent': null, wanted: [], checkpoint: '49680479717105386120086456308842475406191727648434028546', 'plugin-digest': null, parents: [], children: [], ...more(n),
  })),
});
const withFleet = (answer) => (page) => page.route('**/api/v1/fleet?*', (route) => route.fulfill({ json: typeof answer === 'function' ? answer() : answer }));

describe('by keyboard alone', () => {
  test('the first stop skips to the page', async (t) => {
    const page = await open(t);
    await page.locator('.strip a').first().waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await focused(page), 'Skip to the content');
    await page.keyboard.press('Enter');
    assert.equal(await focused(page), 'Fleet');
  });

  test('the strip of shards is one stop, and the arrow keys lead from shard to shard', async (t) => {
    const page = await open(t);
    await until('four shards', async () => (await page.locator('.strip a').count()) === 4);
    await pressUntil(page, 'Tab', (name) => /^shard \d+: /.test(name));
    assert.match(await focused(page), /^shard 0: /);
    await page.keyboard.press('ArrowRight');
    assert.match(await focused(page), /^shard 1: /);
    await page.keyboard.press('End');
    assert.match(await focused(page), /^shard 3: /);
    await page.keyboard.press('Home');
    assert.match(await focused(page), /^shard 0: /);
    await page.keyboard.press('Tab');
    assert.doesNotMatch(await focused(page), /^shard \d+: /);
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');
    await heading(page, 'Shard 0');
    await until('the heading has the focus', async () => (await focused(page)) === 'Shard 0');
  });

  test('a command is filled in, shown and done', async (t) => {
    const page = await open(t, { base: world.trouble.url, route: '/commands/pause' });
    await heading(page, 'pause');
    await until('the field of shards has the focus', async () => {
      await page.keyboard.press('Tab');
      return (await page.evaluate(() => document.activeElement.id)) === 'arg-shards';
    });
    await page.keyboard.type('1');
    await pressUntil(page, 'Tab', (name) => name === 'Show what it would do');
    await page.keyboard.press('Enter');
    await until('the answer has the focus', async () => (await focused(page)) === 'What it would do');
    await until('the field of the reason has the focus', async () => {
      await page.keyboard.press('Tab');
      return (await page.evaluate(() => document.activeElement.id)) === 'why';
    });
    await page.keyboard.type('by keyboard');
    await page.keyboard.press('Enter');
    await until('the answer has the focus', async () => (await focused(page)) === 'What was done');
    const lease = (await cliJson('trouble', ['leases', 'trouble'])).find((one) => one.shard === shardId(1));
    assert.match(lease.wanted.join(), /by keyboard/);
    await change('trouble', ['resume', 'trouble', '1']);
  });

  test('what has the focus can be seen', async (t) => {
    const page = await open(t);
    await page.locator('.strip a').first().waitFor();
    for (let n = 0; n < 25; n += 1) {
      await page.keyboard.press('Tab');
      if (await page.evaluate(() => document.activeElement === document.body)) break;
      const outline = await page.evaluate(() => {
        const style = getComputedStyle(document.activeElement);
        return [style.outlineStyle, parseFloat(style.outlineWidth)];
      });
      assert.ok(outline[0] !== 'none' && outline[1] >= 2, await focused(page));
    }
  });

  test('a poll never moves the focus', async (t) => {
    const page = await open(t);
    await page.locator('.strip a').first().waitFor();
    await page.getByLabel('Find').focus();
    const asked = await page.evaluate(() => performance.getEntriesByName(performance.getEntriesByType('resource').find((one) => one.name.includes('/fleet')).name).length);
    await until('it was asked again', () => page.evaluate((n) => performance.getEntriesByType('resource').filter((one) => one.name.includes('/fleet')).length > n + 1, asked));
    assert.equal(await page.evaluate(() => document.activeElement.id), 'shard-filter');
  });
});

describe('addresses', () => {
  for (const [route, title] of [['/', 'Fleet'], ['/shards/shardId-000000000002', 'Shard 2'], ['/plugins', 'Plugins'], ['/leases', 'Leases'], ['/letters', 'Failed batches'], ['/history', 'History'], ['/commands', 'Commands'], ['/commands/state%20reset', 'state reset']]) {
    test(`${route} leads to ${title}`, async (t) => {
      const page = await open(t, { route });
      await heading(page, title);
    });
  }

  test('an address fills in a form, and never does more', async (t) => {
    const page = await open(t, { route: '/commands/seek?shards=0&shards=2&to=-2h&state=keep&reopen=true&apply=true&why=because' });
    await heading(page, 'seek');
    assert.equal(await page.locator('#arg-shards').inputValue(), '0\n2');
    assert.equal(await page.locator('#arg-to').inputValue(), '-2h');
    assert.equal(await page.locator('#arg-state').inputValue(), 'keep');
    assert.ok(await page.locator('#arg-reopen').isChecked());
    assert.equal(await page.getByRole('button', { name: 'Do it' }).count(), 0);
    assert.equal(await page.locator('.answer').count(), 0);
  });

  test('the back button leads back, with the filled form', async (t) => {
    const page = await open(t, { route: '/leases' });
    await heading(page, 'Leases');
    await page.getByRole('link', { name: 'Commands' }).click();
    await heading(page, 'Commands');
    await page.getByRole('link', { name: 'pause' }).click();
    await heading(page, 'pause');
    await page.locator('#arg-shards').fill('3');
    await page.getByRole('button', { name: 'Show what it would do' }).click();
    await page.getByLabel('Reason').waitFor();
    await page.getByRole('link', { name: 'History' }).click();
    await heading(page, 'History');
    await page.goBack();
    await heading(page, 'pause');
    assert.equal(await page.locator('#arg-shards').inputValue(), '3');
    await page.goBack();
    await heading(page, 'Commands');
    await page.goBack();
    await heading(page, 'Leases');
  });

  test('the application stays in the address', async (t) => {
    const page = await open(t, { route: '/?application=quakes' });
    await heading(page, 'Fleet');
    for (const [name, title] of [['Leases', 'Leases'], ['History', 'History'], ['Fleet', 'Fleet']]) {
      await page.getByRole('navigation').getByRole('link', { name }).click();
      await heading(page, title);
      assert.match(page.url(), /application=quakes/);
    }
  });

  test('the heading gets the focus when the page changes', async (t) => {
    const page = await open(t);
    await heading(page, 'Fleet');
    await page.getByRole('link', { name: 'History' }).click();
    await until('the heading has the focus', async () => (await focused(page)) === 'History');
  });
});

describe('polls', () => {
  test('stop while the page is hidden, and begin again at once when it is visible', async (t) => {
    let asked = 0;
    const page = await open(t, { before: (one) => one.on('request', (request) => { asked += request.url().includes('/fleet') ? 1 : 0; }) });
    await until('it is asked again and again', () => asked >= 2);
    await setHidden(page, true);
    const before = asked;
    // Another page of the same host is asked meanwhile: time passes, by as many polls.
    const other = await open(t);
    let others = 0;
    other.on('request', (request) => { others += request.url().includes('/fleet') ? 1 : 0; });
    await until('another page was asked three times', () => others >= 3);
    assert.equal(asked, before);
    await setHidden(page, false);
    await until('it is asked again', () => asked > before);
  });

  test('are one request at a time', async (t) => {
    let [now, most, all] = [0, 0, 0];
    const page = await open(t, {
      before: (one) => one.route('**/api/v1/fleet?*', async (route) => {
        now += 1;
        all += 1;
        most = Math.max(most, now);
        const response = await route.fetch();
        now -= 1;
        await route.fulfill({ response });
      }),
    });
    await page.locator('.strip a').first().waitFor();
    await until('three polls', () => all >= 3);
    assert.equal(most, 1);
  });

  test('that fail leave what is known, say since when, and go on', async (t) => {
    const page = await open(t);
    await page.locator('.strip a').first().waitFor();
    await page.route('**/api/v1/fleet?*', (route) => route.fulfill({ status: 503, json: { problem: 'this host is stopping' } }));
    await page.getByText('this host is stopping').waitFor();
    await page.getByText(/This data is from/).waitFor();
    assert.equal(await page.locator('.strip a').count(), 4);
    await page.unroute('**/api/v1/fleet?*');
    await page.getByText(/^As of/).waitFor();
  });

  test('that bring nonsense do not take the page down', async (t) => {
    const page = await open(t, { before: (one) => one.route('**/api/v1/fleet?*', (route) => route.fulfill({ status: 200, body: 'no json' })) });
    await page.getByText('its answer was cut off').waitFor();
    await page.unroute('**/api/v1/fleet?*');
    await page.locator('.strip a').first().waitFor();
  });
});

describe('hostile content is text and nothing else', () => {
  test('in the message of a plugin', async (t) => {
    const page = await open(t, { base: world.trouble.url });
    const why = page.getByRole('region', { name: /attention/ }).getByText('<img src=x').first();
    await why.waitFor();
    assert.equal(await page.locator('main img, main script').count(), 0);
  });

  test('in names of shards, hosts and applications, and in reasons', async (t) => {
    const answer = { ...fleetOf(1, 1, () => ({ shard: HOSTILE, owner: HOSTILE, verdict: 'stuck', because: HOSTILE, wanted: [HOSTILE] })), paused: HOSTILE, stream: HOSTILE, 'bad-rows': [HOSTILE], 'hosts-unknown': HOSTILE };
    answer.hosts[0] = { worker: HOSTILE, leases: 1, states: [HOSTILE], troubles: [HOSTILE] };
    const page = await open(t, { before: withFleet(answer) });
    await page.locator('.strip a').first().waitFor();
    const words = await page.locator('main').innerText();
    assert.ok(words.split(HARMLESS).length >= 8, words);
    assert.ok(!words.includes('\u202e') && !words.includes('\u0007'));
    const labels = await page.locator('[aria-label], [title]').evaluateAll((all) => all.map((one) => `${one.getAttribute('aria-label')} ${one.title}`).join());
    assert.ok(!labels.includes('\u202e'), labels);
    assert.equal(await page.locator('main img, main script').count(), 0);
    await page.locator('.strip a').first().click();
    await page.getByRole('heading', { level: 1, name: /^Shard / }).waitFor();
    assert.equal(await page.locator('main img, main script').count(), 0);
    assert.ok(await overflow(page) <= 0);
  });

  test('in reasons of the history', async (t) => {
    await change('trouble', ['pause', 'trouble', '1', '--why', '<b onclick=alert(1)>bold</b>'].slice(0, 3));
    await change('trouble', ['resume', 'trouble', '1']);
    const page = await open(t, {
      route: '/history',
      before: (one) => one.route('**/commands/history?*', (route) => route.fulfill({ json: { 'command-line': '', problem: null, results: [[{ at: '2026-01-01T00:00:00Z', 'at-millis': 1, by: HOSTILE, deed: HOSTILE, shard: null, details: HOSTILE, why: HOSTILE }]] } })),
    });
    await page.locator('main tbody tr').first().waitFor();
    const words = await page.locator('main').innerText();
    assert.equal(words.split(HARMLESS).length, 5, words);
  });

  test('in the records of a failed batch', async (t) => {
    const page = await open(t, { base: world.trouble.url, route: '/letters' });
    await page.locator('main table a').first().click();
    await page.getByRole('button', { name: 'Run it again' }).click();
    await page.getByRole('heading', { name: 'Run again' }).waitFor();
    const words = await page.locator('main').innerText();
    assert.ok(words.includes('<img src=x') && !words.includes('\u202e'), words);
    assert.equal(await page.locator('main img, main script').count(), 0);
  });

  test('in answers of an unknown shape', async (t) => {
    const deep = { [HOSTILE]: [{ a: HOSTILE, b: [[HOSTILE]], c: null, __proto__x: true }] };
    const page = await open(t, {
      route: '/commands/doctor',
      before: (one) => one.route('**/commands/doctor?*', (route) => route.fulfill({ json: { 'command-line': HOSTILE, problem: HOSTILE, results: [deep] } })),
    });
    await page.getByRole('button', { name: 'Show', exact: true }).click();
    await page.getByRole('heading', { name: 'Answer' }).waitFor();
    assert.ok((await page.locator('.answer').innerText()).split(HARMLESS).length >= 6);
  });

  test('that is very long neither widens the page nor hides what stands after it', async (t) => {
    const long = 'x'.repeat(20_000);
    const answer = fleetOf(2, 2, (n) => ({ verdict: 'stuck', because: n === 0 ? long : 'short', owner: n === 0 ? long.slice(0, 500) : 'host-1' }));
    const page = await open(t, { width: 320, before: withFleet(answer) });
    await page.getByText('short', { exact: true }).waitFor();
    assert.ok(await overflow(page) <= 0);
  });

  test('in the live tail, which shows 500 lines at most and says what was dropped', async (t) => {
    const events = [...Array(700).keys()].map((n) => ({ what: 'record', 'at-ms': Date.now(), shard: shardId(0), sequence: String(n), key: HOSTILE, text: `${HOSTILE} line ${n}`, bytes: 9, 'is-cut': n === 699 }));
    const body = [...events, { what: 'dropped', count: 12 }].map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
    let asked = null;
    const page = await open(t, {
      route: '/shards/shardId-000000000000',
      before: async (one) => {
        await one.route('**/api/v1/session', async (route) => {
          const response = await route.fetch();
          await route.fulfill({ response, json: { ...(await response.json()), features: ['tail'] } });
        });
        await one.route('**/api/v1/tail?*', (route) => {
          if (asked) return route.abort();
          asked = new URL(route.request().url()).searchParams;
          return route.fulfill({ contentType: 'text/event-stream', body });
        });
      },
    });
    await page.getByRole('region', { name: 'Live tail' }).getByLabel('Contains').fill('line');
    await page.getByRole('checkbox', { name: 'log lines' }).uncheck();
    await page.getByRole('button', { name: 'Start' }).click();
    const lines = page.locator('.tail li');
    await until('the last line is shown', async () => /line 699/.test(await lines.last().textContent()));
    assert.equal(await lines.count(), 500);
    assert.ok((await lines.last().textContent()).includes(HARMLESS));
    await page.getByText('12 dropped').waitFor();
    assert.deepEqual([asked.get('contains'), asked.get('what'), asked.get('shard'), asked.get('application')], ['line', 'records,outputs,failures,only-at-work,only-shadow', shardId(0), 'quakes']);
    assert.deepEqual(await axe(page), []);
  });
});

describe('the policy', () => {
  test('lets no script run that is written into the page', async (t) => {
    const page = await open(t);
    await heading(page, 'Fleet');
    const blocked = await page.evaluate(() => new Promise((resolve) => {
      document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
      const script = document.createElement('script');
      try { script.textContent = 'window.broken = 1'; } catch { resolve('trusted-types'); }
      document.body.append(script);
    }));
    assert.match(blocked, /script-src|trusted-types/);
    assert.equal(await page.evaluate(() => window.broken), undefined);
    page.wrong.length = 0;
  });

  test('lets no HTML be made of text', async (t) => {
    const page = await open(t);
    await heading(page, 'Fleet');
    const told = await page.evaluate(() => { try { document.createElement('p').innerHTML = '<b>x</b>'; return 'made'; } catch (error) { return error.name; } });
    assert.equal(told, 'TypeError');
    page.wrong.length = 0;
  });

  test('lets nothing be asked from elsewhere', async (t) => {
    const page = await open(t);
    await heading(page, 'Fleet');
    const told = await page.evaluate(() => fetch('http://127.0.0.2:9/').then(() => 'asked', () => 'refused'));
    assert.equal(told, 'refused');
    page.wrong.length = 0;
  });
});

describe('a thousand shards on fifty hosts', () => {
  const large = (verdict = 'moving') => fleetOf(1000, 50, (n) => (n % 100 === 7 ? { verdict, because: 'the sink says no' } : {}));

  test('are one screen, each with a name, and can be used by everybody', async (t) => {
    const page = await open(t, { before: withFleet(large('stuck')) });
    await until('each shard has its cell', async () => (await page.locator('.strip a').count()) === 1000);
    assert.equal(await page.locator('.strip a.v-stuck').count(), 10);
    assert.equal(await page.getByRole('region', { name: 'Hosts of quakes' }).locator('tbody tr').count(), 50);
    assert.equal(await page.locator('.strip a[tabindex="0"]').count(), 1);
    assert.deepEqual(await axe(page), []);
  });

  test('fit a narrow screen', async (t) => {
    const page = await open(t, { width: 320, before: withFleet(large()) });
    await until('each shard has its cell', async () => (await page.locator('.strip a').count()) === 1000);
    assert.ok(await overflow(page) <= 0);
  });

  test('touch only the cells that changed when they are asked for again', async (t) => {
    let looks = 0;
    const page = await open(t, { before: withFleet(() => { looks += 1; return large(looks > 2 ? 'stuck' : 'moving'); }) });
    await until('each shard has its cell', async () => (await page.locator('.strip a').count()) === 1000);
    await page.evaluate(() => {
      window.touched = new Set();
      new MutationObserver((all) => all.forEach((one) => window.touched.add(one.target.closest?.('li') ?? one.target))).observe(document.querySelector('.strip'), { subtree: true, attributes: true, childList: true, characterData: true });
    });
    await page.locator('.strip a.v-stuck').first().waitFor();
    const touched = await page.evaluate(() => window.touched.size);
    assert.ok(touched > 0 && touched <= 30, `${touched} of 1000 were touched`);
  });
});

test('the live tail shows what passes through a shard, until it is held or stopped', async (t) => {
  const page = await open(t, { base: world.trouble.url, route: '/shards/shardId-000000000000' });
  const tail = page.getByRole('region', { name: 'Live tail' });
  await tail.getByRole('button', { name: 'Start' }).click();
  const lines = tail.locator('.tail li');
  await until('records and failures are shown', async () => {
    const words = (await lines.allTextContents()).join('\n');
    return /record/.test(words) && /failure/.test(words) && words.includes('\\u202egnp.exe');
  });
  await tail.getByRole('button', { name: 'Hold' }).click();
  const held = await lines.last().textContent();
  const next = page.waitForResponse((response) => response.url().includes('/api/v1/fleet'));
  await next;
  assert.equal(await lines.last().textContent(), held);
  await tail.getByRole('button', { name: 'Continue' }).click();
  await until('it goes on', async () => (await lines.count()) > 0 && (await lines.last().textContent()) !== held);
  await tail.getByLabel('Contains').fill('nothing is like this');
  await tail.getByRole('button', { name: 'Apply' }).click();
  await tail.getByRole('button', { name: 'Clear' }).click();
  await tail.getByText('Waiting for the first line').waitFor();
  await tail.getByRole('button', { name: 'Stop' }).click();
  await tail.getByRole('button', { name: 'Start' }).waitFor();
});

test('the history is filtered by text and by how far back it goes', async (t) => {
  await change('trouble', ['pause', 'trouble', '1']);
  await change('trouble', ['resume', 'trouble', '1']);
  const page = await open(t, { base: world.trouble.url, route: '/history' });
  const rows = page.locator('main tbody tr');
  await page.getByLabel('Filter').fill('resume somebody-else');
  await until('only such entries are shown', async () => (await rows.count()) > 0 && (await rows.allTextContents()).every((words) => /resume/.test(words) && /somebody-else/.test(words) && /from the command line/.test(words)));
  await page.getByLabel('Filter').fill('nothing is like this');
  await page.getByText('No entry matches.').waitFor();
  await page.getByLabel('Filter').fill('');
  await page.getByLabel('Only commands and what followed').check();
  await until('no deed of hosts is shown', async () => (await rows.count()) > 0 && !(await rows.allTextContents()).some((words) => /took/.test(words)));
});

test('the failed batches open, run again, and show the message and the command line', async (t) => {
  const page = await open(t, { base: world.trouble.url, route: '/letters' });
  await page.getByLabel('Filter').fill('GeoJSON');
  await page.locator('main table a').first().click();
  await heading(page, 'Failed batch');
  await page.getByRole('button', { name: 'Run it again' }).click();
  await page.getByText('It fails as before.').waitFor();
  await page.getByRole('table', { name: 'Records that the plugin reported' }).getByText('not a GeoJSON feature').waitFor();
  await page.getByText(/^shardmill debug trouble /).waitFor();
  await page.getByRole('link', { name: 'All failed batches' }).click();
  await heading(page, 'Failed batches');
});


test('a host without an application says so, and the page goes on by itself when it has one', async (t) => {
  let isThere = false;
  const page = await open(t, {
    before: (one) => one.route('**/api/v1/session', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), ...(isThere ? {} : { applications: [] }) } });
    }),
  });
  await heading(page, 'No application');
  isThere = true;
  await heading(page, 'Fleet');
});
