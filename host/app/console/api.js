// Requests to the host. Answers are JSON; what went wrong is an object with a text in one line.
import { useCallback, useLayoutEffect, useRef, useState } from './html.js';

const KEY = 'shardmill-token';
const POLL_EVERY_MS = 2000;
// Data that is older counts as out of date, also while a request hangs.
const STALE_AFTER_MS = 7000;
const POLL_GIVE_UP_MS = 30_000;

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const heard = new Set();
// Tells all views that the fleet may have changed, or that the session is over.
export const tell = (what) => heard.forEach((listener) => listener(what));
export const listen = (listener) => {
  heard.add(listener);
  return () => heard.delete(listener);
};

const headers = (more = {}) => {
  const known = token.get();
  return known ? { ...more, authorization: `Bearer ${known}` } : more;
};

const problemOf = async (response) => {
  let text = '';
  try { text = (await response.json()).problem ?? ''; } catch { /* not JSON */ }
  const meaning = {
    401: 'The host does not know this token.',
    403: 'You may not do this:',
    429: 'The host has too many requests; the console tries again soon.',
    500: 'The host failed:',
    503: 'The host cannot answer now:',
  }[response.status] ?? (text ? '' : `The host answered with ${response.status}.`);
  if (response.status === 401) tell('signed-out');
  return new Problem(response.status, response.status === 401 || !text ? meaning.replace(/:$/, '.') : `${meaning} ${text}`.trim());
};

export const request = async (path, options = {}) => {
  let response;
  try {
    response = await fetch(path, { cache: 'no-store', credentials: 'same-origin', redirect: 'error', ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'The host does not answer.');
  }
  if (!response.ok) throw await problemOf(response);
  return response;
};

export const getJson = async (path, signal) => {
  const response = await request(path, { signal });
  try {
    return await response.json();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'The host does not answer: its answer was cut off.');
  }
};

const commandPath = (name) => `/api/v1/commands/${encodeURIComponent(name)}`;

const queryOf = (args) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== false && one !== '' && one !== null && one !== undefined) query.append(name, String(one));
    }
  }
  const text = query.toString().replace(/\+/g, '%20');
  return text ? `?${text}` : '';
};

// What a command that changes nothing shows.
export const look = (name, args, signal) => getJson(commandPath(name) + queryOf(args), signal);

// Runs a command that may change something.
export const run = async (name, args) => {
  const response = await request(commandPath(name), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ arguments: args }),
  });
  return response.json();
};

// A command's only result, or what was wrong with it.
export const resultOf = (answer) => {
  const results = answer.results ?? [];
  if (results.length === 0 && answer.problem) throw new Problem(0, answer.problem);
  return results.length === 1 ? results[0] : results;
};

// Asks again and again while the page is visible, one request at a time. `ask` is given a signal and what it gave
// before; another `key` starts over.
export const usePoll = (key, ask, every = POLL_EVERY_MS) => {
  const [state, set] = useState({ key, data: null, at: 0, problem: null, isStale: false });
  const asked = useRef(ask);
  asked.current = ask;
  const again = useRef(() => {});
  // Before the first picture: the request is on its way while the page is drawn.
  useLayoutEffect(() => {
    let timer = 0;
    let abort = null;
    let last = { key, data: null, at: 0, problem: null, isStale: false };
    let isOver = false;
    const put = (next) => { last = { ...last, ...next, key }; set(last); };
    const stop = () => {
      clearTimeout(timer);
      abort?.abort();
      abort = null;
    };
    const next = async () => {
      clearTimeout(timer);
      if (isOver || document.hidden || abort) return;
      const mine = new AbortController();
      abort = mine;
      const late = setTimeout(() => last.at && put({ isStale: true }), STALE_AFTER_MS);
      const lost = setTimeout(() => mine.abort('late'), POLL_GIVE_UP_MS);
      try {
        const data = await asked.current(mine.signal, last.data);
        if (abort === mine) put({ data, at: Date.now(), problem: null, isStale: false });
      } catch (error) {
        if (abort === mine) {
          const problem = error instanceof Problem ? error : new Problem(0, mine.signal.aborted ? 'The host does not answer.' : String(error));
          put({ problem, isStale: last.at > 0 });
        }
      } finally {
        clearTimeout(late);
        clearTimeout(lost);
        if (abort === mine) {
          abort = null;
          if (!isOver && last.problem?.status !== 401) timer = setTimeout(next, every);
        }
      }
    };
    const onVisible = () => (document.hidden ? stop() : next());
    again.current = () => { stop(); next(); };
    const unlisten = listen((what) => what === 'changed' && again.current());
    document.addEventListener('visibilitychange', onVisible);
    set(last);
    next();
    return () => {
      isOver = true;
      stop();
      unlisten();
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key, every]);
  const retry = useCallback(() => again.current(), []);
  return state.key === key ? { ...state, retry } : { key, data: null, at: 0, problem: null, isStale: false, retry };
};
