// The fleet: what is wrong first, then every shard and every host.
import { html, useMemo, useRef, useState } from './html.js';
import { getJson, usePoll } from './api.js';
import { link } from './route.js';
import { plural, shortShard, span, matches } from './text.js';
import { Alert, CommandLink, Freshness, Heading, ruleOf, ShardLink, Table, useConsole, Verdict, verdictOf, VERDICTS, WAITS } from './parts.js';

export const fleetPath = (application) => `/api/v1/fleet?application=${encodeURIComponent(application)}`;

const STATE_NEARLY_FULL = 80;
const ATTENTION_MANY = 12;
const HOSTS_MANY = 60;

export const lagOf = (shard) => shard['millis-behind-latest'] ?? null;
const isNearlyFull = (shard) => (shard['state-percent'] ?? 0) >= STATE_NEARLY_FULL;
// A child whose parents are not finished has no owner yet, as it should be.
const isInTurn = (shard) => shard.verdict === 'unheld' && shard['waits-for'] === 'another-shard';
const NEEDS = new Set(['stuck', 'unheld', 'falling-behind', 'paused']);

// What needs attention, the worst first.
export const attention = (shards, isFleetPaused) => shards
  .filter((shard) => (NEEDS.has(shard.verdict) && !(isFleetPaused && shard.verdict === 'paused') && !isInTurn(shard)) || isNearlyFull(shard) || !VERDICTS[shard.verdict])
  .sort((a, b) => verdictOf(a.verdict).rank - verdictOf(b.verdict).rank || (lagOf(b) ?? -1) - (lagOf(a) ?? -1));

export const reasonOf = (shard) => {
  const own = isInTurn(shard) ? 'waits until its parents are finished' : { unheld: 'no live host holds its lease', 'falling-behind': 'its lag grows' }[shard.verdict];
  const parts = [shard.because ?? own];
  if (isNearlyFull(shard)) parts.push(`the state takes ${shard['state-percent']} % of its limit`);
  return parts.filter(Boolean).join('; ');
};

const cellLabel = (shard) => `shard ${shortShard(shard.shard)}: ${verdictOf(shard.verdict).says}, ${shard.owner ? `on ${shard.owner}` : 'no host'}`;

// One element a shard. A cell whose shard is as before is the same object as before, which is not compared again.
const Strip = ({ shards, application, isDimmed }) => {
  const cells = useRef(new Map());
  const strip = useRef(null);
  const [current, setCurrent] = useState(null);
  const first = shards.some((shard) => shard.shard === current) ? current : shards[0]?.shard;
  const drawn = shards.map((shard) => {
    const rule = ruleOf(shard.verdict);
    const sign = `${rule} ${shard.owner} ${first === shard.shard} ${application}`;
    const known = cells.current.get(shard.shard);
    if (known?.sign === sign) return known.cell;
    const label = cellLabel(shard);
    const cell = html`<li key=${shard.shard}><a class=${`cell v-${rule}`} href=${link(`/shards/${shard.shard}`, [['application', application]])} aria-label=${label} title=${label} data-shard=${shard.shard} tabindex=${first === shard.shard ? 0 : -1}>${verdictOf(shard.verdict).sign}</a></li>`;
    cells.current.set(shard.shard, { sign, cell });
    return cell;
  });
  const move = (event) => {
    const all = [...strip.current.querySelectorAll('a')];
    const at = all.indexOf(document.activeElement);
    const row = all.findIndex((cell) => cell.offsetTop > all[0].offsetTop);
    const step = row < 0 ? all.length : row;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + step, ArrowUp: at - step, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const target = all[Math.min(all.length - 1, Math.max(0, to))];
    setCurrent(target.dataset.shard);
    target.focus();
  };
  return html`
    <p class="hidden" id="strip-help">Move between shards with the arrow keys, Home and End. Enter opens the shard.</p>
    <ul class=${`strip${isDimmed ? ' old' : ''}`} ref=${strip} onKeyDown=${move} aria-label="Shards" aria-describedby="strip-help">${drawn}</ul>`;
};

const Verdicts = ({ counts, chosen, onChoose }) => html`
  <div class="verdicts" role="group" aria-label="Show only shards that are">
    ${Object.keys(counts).sort((a, b) => verdictOf(a).rank - verdictOf(b).rank).map((code) => html`
      <button type="button" key=${code} class=${`badge v-${ruleOf(code)}`} aria-pressed=${chosen === code} title=${verdictOf(code).means} onClick=${() => onChoose(chosen === code ? '' : code)}>
        <span class="sign" aria-hidden="true">${verdictOf(code).sign}</span> ${verdictOf(code).says} <b>${counts[code].toLocaleString('en')}</b>
      </button>`)}
  </div>`;

const Counts = ({ fleet, wrong }) => {
  const of = fleet.counts;
  const dead = fleet.hosts.filter((host) => host.states.includes('dead')).length;
  const cards = [
    ['open shards held', `${of.held.toLocaleString('en')} / ${of.open.toLocaleString('en')}`, of.held + fleet.shards.filter(isInTurn).length < of.open ? 'bad' : ''],
    ['stuck', of.stuck, of.stuck > 0 ? 'bad' : ''],
    ['paused', of.paused, of.paused > 0 ? 'warn' : ''],
    ['finished', of.finished, ''],
    ['hosts', fleet.hosts.length - dead, fleet.hosts.length === dead ? 'bad' : ''],
    ['dead hosts', dead, dead > 0 ? 'bad' : ''],
    ['need attention', wrong, wrong > 0 ? 'warn' : ''],
  ];
  return html`<dl class="counts">${cards.map(([title, n, kind]) => html`<div key=${title} class=${kind}><dt>${title}</dt><dd>${kind === 'bad' && html`<span class="sign" aria-hidden="true">!</span> `}${n.toLocaleString('en')}</dd></div>`)}</dl>`;
};

const HostStates = ({ host }) => {
  if (host.states.length === 0) return html`<span class="quiet">live</span>`;
  return host.states.map((state) => html`<span key=${state} class=${`badge s-${['leader', 'drained', 'shutting-down', 'dead'].includes(state) ? state : 'other'}`}>${state}</span> `);
};

const Hosts = ({ fleet, onHost, chosen }) => {
  const badness = (host) => (host.states.includes('dead') ? 0 : host.troubles.length > 0 ? 1 : host.states.length > 0 ? 2 : 3);
  const hosts = [...fleet.hosts].sort((a, b) => badness(a) - badness(b) || a.worker.localeCompare(b.worker, 'en', { numeric: true }));
  const columns = [
    { key: 'worker', title: 'Host', cell: (host) => html`<button type="button" class="plain" aria-pressed=${chosen === host.worker} title="Show only its shards" onClick=${() => onHost(chosen === host.worker ? '' : host.worker)}>${host.worker}</button>` },
    { key: 'leases', title: 'Leases', isNumber: true, cell: (host) => host.leases.toLocaleString('en') },
    { key: 'states', title: 'State and problems', isLong: true, cell: (host) => html`<span><${HostStates} host=${host} />${host.troubles.length > 0 && html`<span class="bad"> ${host.troubles.join('; ')}</span>`}</span>` },
    { key: 'do', title: 'Change', cell: (host) => (host.states.includes('drained')
      ? html`<${CommandLink} name="drain" args=${[['worker', host.worker], ['undo', 'true']]} kind="small">undo drain<span class="hidden"> ${host.worker}</span><//>`
      : html`<${CommandLink} name="drain" args=${[['worker', host.worker]]} kind="small">drain<span class="hidden"> ${host.worker}</span><//>`) },
  ];
  const { can } = useConsole();
  return html`<${Table} caption=${`Hosts of ${fleet.application}`} isCaptionHidden=${true} columns=${can('operate') ? columns : columns.slice(0, 3)} rows=${hosts} keyOf=${(host) => host.worker} many=${HOSTS_MANY} empty=${fleet['hosts-unknown'] ? 'The hosts are not known.' : 'No host is registered, so nobody reads the shards.'} />`;
};

const Attention = ({ shards, isFleetPaused }) => {
  const rows = attention(shards, isFleetPaused);
  const columns = [
    { key: 'shard', title: 'Shard', cell: (shard) => html`<${ShardLink} shard=${shard.shard} />` },
    { key: 'verdict', title: 'Verdict', cell: (shard) => html`<${Verdict} code=${shard.verdict} />` },
    { key: 'lag', title: 'Lag', isNumber: true, cell: (shard) => span(lagOf(shard)) },
    { key: 'why', title: 'Why', isLong: true, cell: (shard) => reasonOf(shard) || '–' },
    { key: 'waits', title: 'Waits for', cell: (shard) => WAITS[shard['waits-for']] ?? shard['waits-for'] ?? '–' },
    { key: 'owner', title: 'Host', cell: (shard) => shard.owner ?? '–' },
    { key: 'wanted', title: 'Wanted', isLong: true, cell: (shard) => shard.wanted.join('; ') || '–' },
  ];
  if (rows.length === 0) return html`<${Alert} kind="good">No shard needs attention.<//>`;
  return html`<${Table} caption=${`${plural(rows.length, 'shard needs', 'shards need')} attention, the worst first`} columns=${columns} rows=${rows} keyOf=${(shard) => shard.shard} many=${ATTENTION_MANY} rowClass=${(shard) => `row-${ruleOf(shard.verdict)}`} />`;
};

export const Fleet = ({ route }) => {
  const { application } = useConsole();
  const poll = usePoll(`fleet ${application}`, (signal) => getJson(fleetPath(application), signal));
  const [verdict, setVerdict] = useState(route.query.get('verdict') ?? '');
  const [host, setHost] = useState(route.query.get('host') ?? '');
  const [text, setText] = useState('');
  const fleet = poll.data;
  const counts = useMemo(() => {
    const all = {};
    fleet?.shards.forEach((shard) => { all[shard.verdict] = (all[shard.verdict] ?? 0) + 1; });
    return all;
  }, [fleet]);
  const isFiltered = verdict || host || text;
  const shown = !fleet ? [] : isFiltered ? fleet.shards.filter((shard) => (!verdict || shard.verdict === verdict) && (!host || (host === '–' ? !shard.owner : shard.owner === host)) && matches(text, `${shard.shard} ${shard.owner ?? ''}`)) : fleet.shards;
  const isFleetPaused = Boolean(fleet?.paused);
  return html`
    <${Heading} title="Fleet"><div class="actions">
      ${!isFleetPaused && html`<${CommandLink} name="pause">Pause the fleet<//>`}
      ${(isFleetPaused || (fleet?.counts.paused ?? 0) > 0) && html`<${CommandLink} name="resume">Resume<//>`}
    </div><//>
    <${Freshness} poll=${poll} />
    ${fleet && html`
      ${isFleetPaused && html`<${Alert} kind="warn">All shards are paused: ${fleet.paused}<//>`}
      ${fleet['hosts-unknown'] && html`<${Alert}>The hosts are not known: ${fleet['hosts-unknown']}<//>`}
      ${!fleet['hosts-unknown'] && fleet.hosts.length === 0 && fleet.counts.open > 0 && html`<${Alert}>No host is registered, so nobody reads the shards.<//>`}
      ${fleet['bad-rows'].map((row) => html`<${Alert} key=${row}>A row of the lease table cannot be read: ${row}<//>`)}
      <p class="quiet">Stream <b>${fleet.stream ?? 'unknown'}</b></p>
      <${Counts} fleet=${fleet} wrong=${attention(fleet.shards, isFleetPaused).length} />
      <section aria-labelledby="attention"><h2 id="attention">Needs attention</h2><${Attention} shards=${fleet.shards} isFleetPaused=${isFleetPaused} /></section>
      <div class="columns">
        <section aria-labelledby="shards"><h2 id="shards">Shards</h2>
          <${Verdicts} counts=${counts} chosen=${verdict} onChoose=${setVerdict} />
          <div class="filters">
            <div class="field inline"><label for="host-filter">Host</label>
              <select id="host-filter" value=${host} onChange=${(event) => setHost(event.target.value)}>
                <option value="">all</option><option value="–">none</option>
                ${fleet.hosts.map((one) => html`<option key=${one.worker} value=${one.worker} selected=${one.worker === host}>${one.worker}</option>`)}
              </select></div>
            <div class="field inline"><label for="shard-filter">Find</label><input id="shard-filter" type="search" autocomplete="off" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} /></div>
            <p class="quiet" role="status">${isFiltered ? `${shown.length.toLocaleString('en')} of ${plural(fleet.shards.length, 'shard')}` : plural(fleet.shards.length, 'shard')}</p>
            ${isFiltered && html`<button type="button" class="small" onClick=${() => { setVerdict(''); setHost(''); setText(''); }}>Show all</button>`}
          </div>
          ${shown.length > 0 ? html`<${Strip} shards=${shown} application=${application} isDimmed=${poll.isStale} />` : html`<p class="quiet">No shard matches.</p>`}
        </section>
        <section aria-labelledby="hosts" class="hosts"><h2 id="hosts">Hosts</h2><${Hosts} fleet=${fleet} chosen=${host} onHost=${setHost} /></section>
      </div>`}`;
};
