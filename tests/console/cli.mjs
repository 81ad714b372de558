// The binary: its commands, and hosts as processes.
import { execFile, spawn } from 'node:child_process';
import { openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

// Far more than anything takes: machines are shared.
const PATIENCE_MS = 120_000;
const LOOK_EVERY_MS = 100;

const environment = (folder) => {
  const all = { ...process.env, XDG_STATE_HOME: join(folder, 'state') };
  delete all.SHARDMILL_CONFIG;
  delete all.STATE_DIRECTORY;
  return all;
};

// Waits until a condition holds, and says which one did not.
export const until = async (what, isSo, patience = PATIENCE_MS) => {
  const end = Date.now() + patience;
  let last = null;
  for (;;) {
    try {
      const found = await isSo();
      if (found) return found;
      last = null;
    } catch (error) {
      if (error.isFinal) throw error;
      last = error;
    }
    if (Date.now() > end) throw new Error(`it never came about that ${what}`, { cause: last });
    await sleep(LOOK_EVERY_MS);
  }
};

// What a command prints, run in the folder of a fleet. It may end with 1.
export const cli = async (world, args, folder = process.env.CONSOLE_FOLDER) => {
  const cwd = join(folder, world);
  try {
    const { stdout } = await promisify(execFile)(process.env.SHARDMILL, [...args, '--local=data'], { cwd, env: environment(cwd), maxBuffer: 1 << 26 });
    return stdout;
  } catch (error) {
    if (error.code === 1 && error.stdout) return error.stdout;
    throw new Error(`${args.join(' ')}: ${error.stderr}`);
  }
};

export const cliJson = async (world, args) => JSON.parse(await cli(world, [...args, '--json']));

// Makes a change from the command line, as another operator would.
export const change = (world, args) => cliJson(world, [...args, '--apply', '--why', 'from the command line', '--by', 'somebody-else']);

export const freePort = () => new Promise((resolve, reject) => {
  const server = createServer().once('error', reject);
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

// Starts a host and waits until its pages answer.
export const startHost = async (name, args, cwd, port) => {
  const log = join(cwd, `${name}.log`);
  const out = openSync(log, 'a');
  const child = spawn(process.env.SHARDMILL, args, { cwd, env: environment(cwd), stdio: ['ignore', out, out] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  let isOver = false;
  ended.then(() => { isOver = true; });
  const kill = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  // As an operator would: a host that is killed again and again suspects its plugin, and refuses it.
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  await until(`${name} answers`, async () => {
    if (isOver) throw Object.assign(new Error(`${name} ended: ${readFileSync(log, 'utf8').slice(-3000)}`), { isFinal: true });
    return (await fetch(`http://127.0.0.1:${port}/live`)).ok;
  });
  return { name, log, kill, stop };
};
