// Starts what the tests look at, runs them, and stops it again: a quiet fleet of two hosts, a fleet in trouble, and an
// application with state. Everything is in a temporary folder.
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { HOSTILE } from './hostile.mjs';
import { cli, freePort, startHost, until } from './cli.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'console-'));
const hosts = [];

// What hosts of these tests have in common: they look and write often, so that nobody waits.
const COMMON = `
[leases]
duration = "3s"
scan-every = "300ms"
[checkpoint]
age = "300ms"
[reads]
calls-per-second = 20.0
idle-every = "100ms"
[retry]
cap = "300ms"
`;

const TOKENS = {
  viewer: ['view'], reader: ['view-data'], operator: ['operate'], admin: ['admin'],
};
const tokenOf = (name) => `token-of-${name}-0123456789abcdef`;

const write = (name, text) => {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
};

const plugin = (world, guest, name) => {
  mkdirSync(join(folder, world, 'plugins'), { recursive: true });
  copyFileSync(join(process.env.SHARDMILL_GUESTS, `${guest}.wasm`), join(folder, world, 'plugins', `${name}.wasm`));
};

const dev = async (world, shards, more = '') => {
  const port = await freePort();
  const config = write(`${world}/dev.toml`, COMMON + more);
  const args = ['dev', '--data', 'data', '--plugins', 'plugins', '--stream', world, '--shards', String(shards), '--admin', `127.0.0.1:${port}`, '--config', config];
  hosts.push(await startHost(`${world}-a`, args, join(folder, world), port));
  return `http://127.0.0.1:${port}`;
};

const put = (world, name, lines, more = []) => {
  const file = write(`${world}/${name}.ndjson`, `${lines.join('\n')}\n`);
  return cli(world, ['put', '--stream', world, ...more, file], folder);
};

const quake = (id, mag) => JSON.stringify({ id, properties: { mag, place: 'here', time: 1, url: null, net: id }, geometry: { coordinates: [1, 2, 3] } });

const quiet = async () => {
  plugin('quakes', 'earthquakes', 'quakes');
  const url = await dev('quakes', 4);
  const port = await freePort();
  write('quakes/host.token', tokenOf('host'));
  const tokens = Object.entries(TOKENS).map(([name, may]) => {
    write(`quakes/${name}.token`, tokenOf(name));
    return `[console.tokens.${name}]\nfile = "${name}.token"\nmay = ${JSON.stringify(may)}\n`;
  });
  const config = write('quakes/b.toml', `stream = "quakes"\nplugins = "plugins"\nworker-id = "quakes-b"\n${COMMON}\n[host]\nadmin = "127.0.0.1:${port}"\ncache = "cache-b"\nadmin-token = { file = "host.token" }\n[console]\nenabled = true\n${tokens.join('')}`);
  hosts.push(await startHost('quakes-b', ['run', '--config', config, '--local=data'], join(folder, 'quakes'), port));
  const lines = readFileSync(join(root, 'examples/earthquakes/sample.ndjson'), 'utf8').trim().split('\n');
  await put('quakes', 'sample', lines, ['--key-field', 'properties.net']);
  return { url, guarded: `http://127.0.0.1:${port}` };
};

// Two shards of it fail, each at a record whose content is hostile.
const trouble = async () => {
  plugin('trouble', 'earthquakes', 'trouble');
  const url = await dev('trouble', 3, '[plugin.trouble.failure]\nbisect = true\n');
  await put('trouble', 'good', [quake('good', 5)], ['--explicit-hash-key', '0']);
  const bad = [JSON.stringify({ id: 'bad', properties: { mag: process.argv.includes('--pictures') ? 'unknown' : HOSTILE, time: 1 } })];
  await put('trouble', 'first', bad, ['--explicit-hash-key', '0']);
  await put('trouble', 'last', bad, ['--explicit-hash-key', String(2n ** 128n - 1n)]);
  return { url };
};

// An application with one host, which tests start and kill.
const spare = async () => {
  mkdirSync(join(folder, 'quakes', 'spare'), { recursive: true });
  copyFileSync(join(process.env.SHARDMILL_GUESTS, 'earthquakes.wasm'), join(folder, 'quakes', 'spare', 'spare.wasm'));
  const port = await freePort();
  write('quakes/operator.token', tokenOf('operator'));
  const config = write('quakes/spare.toml', `stream = "quakes"\nplugins = "spare"\nworker-id = "spare"\n${COMMON}\n[host]\nadmin = "127.0.0.1:${port}"\ncache = "cache-spare"\n[console]\nenabled = true\n[console.tokens.operator]\nfile = "operator.token"\nmay = ["operate", "view-data"]\n`);
  return { config, port };
};

const stateful = async () => {
  plugin('totals', 'totals', 'totals');
  write('totals/plugins/totals.toml', '[grants]\nstate = true\n');
  const url = await dev('totals', 2);
  const lines = [...Array(200).keys()].map((n) => JSON.stringify({ carrier: ['AA', 'UA', 'DL'][n % 3], dep_delay: n % 7 }));
  await put('totals', 'flights', lines, ['--key-field', 'carrier']);
  return { url };
};

const cleanUp = async () => {
  await Promise.all(hosts.map((host) => host.kill()));
  if (!process.env.KEEP) rmSync(folder, { recursive: true, force: true });
  else console.error(`kept ${folder}`);
};

const main = async () => {
  process.env.CONSOLE_FOLDER = folder;
  const [quakes, troubles, totals] = await Promise.all([quiet(), trouble(), stateful()]);
  const own = await spare();
  await until('the first fleet is shared by two hosts', async () => {
    const leases = await cli('quakes', ['leases', 'quakes', '--json'], folder);
    return new Set(JSON.parse(leases).map((lease) => lease.owner)).size === 2 && JSON.parse(leases).every((lease) => /^\d|HORIZON/.test(lease.checkpoint) && lease.owner);
  });
  await until('the second fleet is in trouble', async () => JSON.parse(await cli('trouble', ['leases', 'trouble', '--json'], folder)).filter((lease) => lease.stuck).length === 2);
  await until('there is a state', async () => JSON.parse(await cli('totals', ['state', 'totals', '--json'], folder)).some((row) => row.bytes > 0));
  process.env.CONSOLE_WORLD = JSON.stringify({ folder, quakes, trouble: troubles, totals, spare: own, tokens: Object.fromEntries(Object.keys(TOKENS).map((name) => [name, tokenOf(name)])) });
  const args = process.argv.slice(2);
  const files = args.length > 0 ? args : readdirSync(here).filter((name) => name.endsWith('.test.mjs')).sort();
  const command = args[0] === '--pictures' ? ['pictures.mjs', ...args.slice(1)] : ['--test', '--test-concurrency=2', ...(process.env.CI ? [] : ['--test-reporter=spec']), ...files];
  return new Promise((resolve) => spawn(process.execPath, command, { cwd: here, stdio: 'inherit' }).on('exit', (code) => resolve(code ?? 1)));
};

let code = 1;
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => cleanUp().finally(() => process.exit(130)));
try {
  code = await main();
} catch (error) {
  console.error(error);
  for (const host of hosts) console.error(host.name, readFileSync(host.log, 'utf8').slice(-3000));
} finally {
  await cleanUp();
}
process.exit(code);
