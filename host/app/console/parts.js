// What several pages share.
import { html, useEffect, useRef, useState, createContext, useContext } from './html.js';
import { clock, shortDigest, shortShard } from './text.js';
import { link } from './route.js';

// The session, the application and the route, for every component.
export const Console = createContext(null);
export const useConsole = () => useContext(Console);

// In the order in which they matter. The sign says the same as the colour.
export const VERDICTS = {
  stuck: { sign: '!', says: 'stuck', means: 'makes no progress', rank: 0 },
  unheld: { sign: '○', says: 'held by nobody', means: 'no live host holds the lease', rank: 1 },
  'falling-behind': { sign: '↓', says: 'falling behind', means: 'its lag grows', rank: 2 },
  silent: { sign: '–', says: 'silent', means: 'no records arrive', rank: 5 },
  paused: { sign: '‖', says: 'paused', means: 'an operator paused it', rank: 3 },
  'catching-up': { sign: '↑', says: 'catching up', means: 'its lag shrinks', rank: 4 },
  moving: { sign: '·', says: 'moving', means: 'records are processed', rank: 6 },
  finished: { sign: '✓', says: 'finished', means: 'read to its end', rank: 7 },
};
const UNKNOWN = { sign: '?', says: 'unknown', means: 'this console does not know the verdict', rank: 3 };
export const verdictOf = (code) => VERDICTS[code] ?? { ...UNKNOWN, says: code ?? UNKNOWN.says };
export const ruleOf = (code) => (VERDICTS[code] ? code : 'unknown');

export const WAITS = {
  kinesis: 'Kinesis', plugin: 'the plugin', sink: 'a sink', 'another-shard': 'another shard', memory: 'memory', operator: 'an operator', table: 'a table',
};

export const Verdict = ({ code }) => {
  const of = verdictOf(code);
  return html`<span class=${`badge v-${ruleOf(code)}`}><span class="sign" aria-hidden="true">${of.sign}</span> ${of.says}</span>`;
};

export const Time = ({ ms }) => {
  const at = new Date(Number(ms));
  if (ms === null || ms === undefined || !Number.isFinite(at.getTime())) return html`<span>–</span>`;
  return html`<time datetime=${at.toISOString()} title=${at.toISOString()}>${clock(ms)}</time>`;
};

export const ShardLink = ({ shard }) => {
  const { application } = useConsole();
  return html`<a class="shard-link" href=${link(`/shards/${shard}`, [['application', application]])} title=${shard}>${shortShard(shard)}</a>`;
};

// A link to a command's form with arguments filled in; nothing if the session may not run it.
export const CommandLink = ({ name, args = [], kind = 'button', children }) => {
  const { application, commands } = useConsole();
  const command = commands.find((one) => one.name === name);
  if (!command || args.some(([arg]) => !command.arguments.some((one) => one.name === arg))) return null;
  const has = command.arguments.some((one) => one.name === 'application');
  const all = [['application', has && !args.some(([arg]) => arg === 'application') ? application : null], ...args];
  return html`<a class=${kind} href=${link(`/commands/${name}`, all)}>${children}</a>`;
};

// The heading of a page. It gets the focus when the page changes, so that a screen reader begins there.
export const Heading = ({ title, children }) => {
  const { application, focusOn } = useConsole();
  const at = useRef(null);
  useEffect(() => {
    document.title = `${title}${application ? ` · ${application}` : ''} · shardmill`;
  }, [title, application]);
  useEffect(() => focusOn(at.current), []);
  return html`<div class="heading"><h1 tabindex="-1" ref=${at}>${title}</h1>${children}</div>`;
};

// Says how old what is shown is, and what is wrong.
export const Freshness = ({ poll }) => {
  const { data, at, problem, isStale } = poll;
  const words = problem ? problem.message : 'The host does not answer.';
  return html`
    <div class="freshness">
      <div role="status" aria-live="polite">
        ${(isStale || problem) && html`
          <p class="alert bad"><span class="sign" aria-hidden="true">!</span> ${words}
            ${data !== null && at > 0 ? html` <strong>This data is from <${Time} ms=${at} />.</strong>` : ''}
            ${problem?.status === 401 || problem?.status === 403 ? '' : ' The console keeps trying.'}
            ${problem?.status === 403 && html` <button type="button" onClick=${poll.retry}>Try again</button>`}
          </p>`}
      </div>
      ${!isStale && !problem && (data === null
        ? html`<p class="quiet">Asking the host…</p>`
        : html`<p class="quiet">As of <${Time} ms=${at} /></p>`)}
    </div>`;
};

export const Alert = ({ kind = 'bad', children }) => html`<p class=${`alert ${kind}`}><span class="sign" aria-hidden="true">${{ bad: '!', warn: '‖', good: '✓', note: 'i' }[kind]}</span> ${children}</p>`;

const MANY = 200;

// A table in a region that scrolls sideways. `columns` are {key, title, cell, by, isNumber}: `by` gives what to sort
// by. Rows are drawn again only if what `sign` says of them changes.
export const Table = ({ caption, columns, rows, keyOf, sort, isCaptionHidden, rowClass, empty = 'Nothing to show.', many = MANY }) => {
  const [order, setOrder] = useState(sort ?? null);
  const [isAll, setAll] = useState(false);
  const column = order && columns.find((one) => one.key === order.key);
  let sorted = rows;
  if (column?.by) {
    const sense = order.isDown ? -1 : 1;
    sorted = [...rows].sort((a, b) => {
      const [x, y] = [column.by(a), column.by(b)];
      // What is not known comes last either way.
      if (x === null || x === undefined || y === null || y === undefined) return (x ?? null) === (y ?? null) ? 0 : x === null || x === undefined ? 1 : -1;
      return sense * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true }));
    });
  }
  const shown = isAll ? sorted : sorted.slice(0, many);
  // Without sorting, a narrow screen shows a row as a list of its cells. The roles keep it a table for screen readers.
  const isStacked = !columns.some((one) => one.by);
  const press = (key) => setOrder((now) => ({ key, isDown: now?.key === key ? !now.isDown : false }));
  const head = columns.map((one) => {
    const isOn = column?.key === one.key;
    return html`<th scope="col" role="columnheader" key=${one.key} class=${one.isNumber ? 'number' : ''} aria-sort=${one.by ? (isOn ? (order.isDown ? 'descending' : 'ascending') : 'none') : null}>
      ${one.by ? html`<button type="button" class="sort" onClick=${() => press(one.key)}>${one.title}<span aria-hidden="true">${isOn ? (order.isDown ? ' ▾' : ' ▴') : ' ⇅'}</span></button>` : one.title}
    </th>`;
  });
  const body = shown.map((row, at) => html`
    <tr key=${keyOf ? keyOf(row) : at} role="row" class=${rowClass ? rowClass(row) : ''}>
      ${columns.map((one, n) => {
    const value = one.cell(row);
    return n === 0
      ? html`<th scope="row" role="rowheader" data-title=${one.title} class=${one.isNumber ? 'number' : ''}>${value}</th>`
      : html`<td role="cell" data-title=${one.title} class=${`${one.isNumber ? 'number' : ''} ${one.isLong ? 'long' : ''} ${value === '–' ? 'none' : ''}`}>${value}</td>`;
  })}
    </tr>`);
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label=${caption}>
      <table role="table" class=${isStacked ? 'stacked' : ''}>
        <caption class=${isCaptionHidden ? 'hidden' : ''}>${caption}</caption>
        <thead role="rowgroup"><tr role="row">${head}</tr></thead>
        <tbody role="rowgroup">${body}</tbody>
      </table>
      ${rows.length === 0 && html`<p class="quiet">${empty}</p>`}
    </div>
    ${sorted.length > shown.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${sorted.length.toLocaleString('en')} rows</button></p>`}`;
};

// Any value as an indented list of keys and values. Only so much of it is drawn at first.
const TREE_MANY = 100;
export const Tree = ({ value, depth = 0 }) => {
  const [isAll, setAll] = useState(false);
  if (value === null || value === undefined) return html`<span class="quiet">none</span>`;
  if (typeof value !== 'object') return html`<span class="value">${typeof value === 'string' ? value : String(value)}</span>`;
  const entries = Object.entries(value);
  if (entries.length === 0) return html`<span class="quiet">${Array.isArray(value) ? 'none' : 'nothing'}</span>`;
  const shown = isAll ? entries : entries.slice(0, TREE_MANY);
  if (depth > 40) return html`<span class="value">${JSON.stringify(value)}</span>`;
  return html`
    <ul class="tree">
      ${shown.map(([name, one]) => html`<li key=${name}><span class="key">${Array.isArray(value) ? `${Number(name) + 1}.` : name}</span> <${Tree} value=${one} depth=${depth + 1} /></li>`)}
      ${entries.length > shown.length && html`<li key="more"><button type="button" onClick=${() => setAll(true)}>Show all ${entries.length}</button></li>`}
    </ul>`;
};

const selectAndCopy = (text) => {
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'hidden';
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  return isCopied;
};

// Copies a text. Without a secure connection the browser has no clipboard for pages, so the old way is tried.
export const Copy = ({ text, what }) => {
  const [said, say] = useState('');
  const copy = async (event) => {
    const button = event.currentTarget;
    let isCopied = false;
    try {
      await navigator.clipboard.writeText(text);
      isCopied = true;
    } catch {
      isCopied = selectAndCopy(text);
      button.focus();
    }
    say(isCopied ? 'copied' : 'could not copy: select the text');
  };
  return html`<button type="button" class="small" onClick=${copy} aria-label=${`Copy ${what}`}>Copy</button> <span role="status" class="quiet">${said}</span>`;
};

export const CommandLine = ({ line }) => html`
  <div class="line"><span class="quiet">The equivalent command line:</span>
    <code class="command-line">${line}</code> <${Copy} text=${line} what="the command line" /></div>`;

export const Digest = ({ digest }) => (digest ? html`<code title=${digest}>${shortDigest(digest)}</code>` : html`<span>–</span>`);

// A text field that filters what is below it.
export const Filter = ({ id, label, value, onValue, count }) => html`
  <div class="field inline"><label for=${id}>${label}</label>
    <input id=${id} type="search" value=${value} autocomplete="off" spellcheck=${false} onInput=${(event) => onValue(event.target.value)} />
    <span class="quiet" role="status">${count}</span></div>`;

export const NoApplication = () => html`
  <${Heading} title="No application" />
  <p class="lead">This host serves no application. It has just started, or its folder has no plugin. This page updates when there is one. If the host refuses a plugin, <a href="#/host">its status</a> has the reason.</p>`;
