// One shard: why it moves or not, its relatives, and its progress while the page is open.
import { html, useState } from './html.js';
import { getJson, look, resultOf, usePoll } from './api.js';
import { rate, shortShard, span } from './text.js';
import { link } from './route.js';
import { Alert, CommandLink, Digest, Freshness, Heading, ShardLink, Table, Time, Tree, useConsole, Verdict, verdictOf, WAITS } from './parts.js';
import { fleetPath, lagOf, reasonOf } from './fleet.js';
import { letterColumns, lettersOf } from './letters.js';
import { Tail } from './tail.js';

const EXPLAIN_EVERY_MS = 6000;
const POINTS_MAX = 300;
const GENERATIONS_MAX = 6;
const RELATIVES_MAX = 24;

// What was seen of each shard while the console was open.
const seen = new Map();
const note = (key, shard) => {
  const points = seen.get(key) ?? [];
  points.push({ at: Date.now(), lag: lagOf(shard), age: shard['settled-arrival-ms'] === null || shard['settled-arrival-ms'] === undefined ? null : Math.max(0, Date.now() - shard['settled-arrival-ms']) });
  seen.set(key, points.slice(-POINTS_MAX));
};

const WIDTH = 600;
const HEIGHT = 120;

const summary = (points, name, what) => {
  const values = points.map((point) => point[name]).filter((value) => value !== null);
  if (values.length === 0) return `${what}: not known`;
  return `${what}: now ${span(values[values.length - 1])}, lowest ${span(Math.min(...values))}, highest ${span(Math.max(...values))}`;
};

// Points that are not known leave a gap.
const path = (points, name, top, from, length) => {
  let isDown = false;
  return points.map((point) => {
    if (point[name] === null) { isDown = false; return ''; }
    const x = 4 + ((point.at - from) / length) * (WIDTH - 8);
    const y = HEIGHT - 6 - (point[name] / top) * (HEIGHT - 16);
    const step = `${isDown ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}${isDown ? '' : 'h.1'}`;
    isDown = true;
    return step;
  }).join('');
};

const Progress = ({ points }) => {
  const values = points.flatMap((point) => [point.lag, point.age]).filter((value) => value !== null);
  const top = Math.max(1000, ...values);
  const from = points[0]?.at ?? 0;
  const length = Math.max(1, (points[points.length - 1]?.at ?? 0) - from);
  const words = `${summary(points, 'lag', 'Lag')}. ${summary(points, 'age', 'Age of the last settled record')}.`;
  return html`
    <section aria-labelledby="progress"><h2 id="progress">Progress</h2>
      <figure>
        <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Progress since the page was opened. ${words}`} preserveAspectRatio="none" class="chart">
          <line x1="0" x2=${WIDTH} y1=${HEIGHT - 6} y2=${HEIGHT - 6} class="axis" />
          <path d=${path(points, 'age', top, from, length)} class="line-age" /><path d=${path(points, 'lag', top, from, length)} class="line-lag" />
        </svg>
        <figcaption><span class="swatch line-lag" aria-hidden="true">━</span> lag, <span class="swatch line-age" aria-hidden="true">╍</span> age of the last settled record; the top is ${span(top)}. ${words} Observed for ${span(length)}.</figcaption>
      </figure>
    </section>`;
};

// Generations of a shard's relatives in one direction.
const generations = (byId, shard, side) => {
  const levels = [];
  const known = new Set([shard]);
  let level = [shard];
  for (let depth = 0; depth < GENERATIONS_MAX && level.length > 0; depth += 1) {
    level = [...new Set(level.flatMap((id) => byId.get(id)?.[side] ?? []))].filter((id) => !known.has(id));
    level.forEach((id) => known.add(id));
    if (level.length > 0) levels.push(level);
  }
  return levels;
};

const Relatives = ({ ids, byId, isHere }) => html`
  <ul class="relatives">${ids.slice(0, RELATIVES_MAX).map((id) => html`<li key=${id} class=${isHere ? 'here' : ''}>
    ${isHere ? html`<b aria-current="true">${shortShard(id)}</b>` : byId.has(id) ? html`<${ShardLink} shard=${id} />` : html`<span title="It has no row in the lease table">${shortShard(id)}</span>`}
    ${byId.has(id) ? html` <${Verdict} code=${byId.get(id).verdict} />` : html` <span class="quiet">no row</span>`}</li>`)}
    ${ids.length > RELATIVES_MAX && html`<li key="more" class="quiet">and ${ids.length - RELATIVES_MAX} more</li>`}</ul>`;

const Lineage = ({ byId, shard }) => {
  const above = generations(byId, shard, 'parents');
  const below = generations(byId, shard, 'children');
  const name = (n, one, many) => (n === 1 ? one : `${many}, ${n} generations away`);
  return html`
    <section aria-labelledby="lineage"><h2 id="lineage">Lineage</h2>
      ${above.length + below.length === 0 ? html`<p class="quiet">No shard was split or merged into this one, and it was not split or merged.</p>` : html`
        <ol class="lineage">
          ${[...above].reverse().map((ids, at) => html`<li key=${`a${at}`}><span class="quiet">${name(above.length - at, ids.length > 1 ? 'Parents' : 'Parent', 'Ancestors')}</span><${Relatives} ids=${ids} byId=${byId} /></li>`)}
          <li key="here"><span class="quiet">This shard</span><${Relatives} ids=${[shard]} byId=${byId} isHere=${true} /></li>
          ${below.map((ids, at) => html`<li key=${`b${at}`}><span class="quiet">${name(at + 1, ids.length > 1 ? 'Children' : 'Child', 'Descendants')}</span><${Relatives} ids=${ids} byId=${byId} /></li>`)}
        </ol>`}
    </section>`;
};

const Facts = ({ facts }) => html`<dl class="facts">${facts.filter(([, value]) => value !== null && value !== undefined && value !== '').map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>`;

const Whys = ({ whys }) => (whys?.length > 0 ? html`<ul class="whys">${whys.map((why, at) => html`<li key=${at}><code>${why.kind}</code> ${why.text}</li>`)}</ul>` : null);

const Explained = ({ explained }) => {
  const place = explained.place;
  const owner = place?.owner;
  // What is said of the shard and of its lease is often the same.
  const whys = [...(explained.why ?? []), ...(place?.why ?? [])];
  const different = whys.filter((why, at) => whys.findIndex((one) => one.text === why.text) === at);
  return html`
    <section aria-labelledby="why"><h2 id="why">Why it moves, or not</h2>
      <${Whys} whys=${different} />
      ${explained.notes?.map((text) => html`<${Alert} kind="note" key=${text}>${text}<//>`)}
      <${Facts} facts=${[
        ['In the stream', explained.listed],
        ['Lease', place?.standing],
        ['Owner', owner && `${owner.worker}: ${owner.state}`],
        ['Held for', place?.['held-for-ms'] !== null && place?.['held-for-ms'] !== undefined ? span(place['held-for-ms']) : null],
        ['Claimed by', place?.['claimed-by'] && `${place['claimed-by'].worker}${place['claimed-by']['is-fresh'] ? '' : ', long ago'}`],
        ['Last given up', place?.['last-given-up']],
        ['Application starts at', explained['starts-at']],
      ]} />
      ${explained['waits-for']?.length > 0 && html`<${Table} caption="Shards that it waits for" columns=${[
        { key: 'shard', title: 'Shard', cell: (one) => html`<${ShardLink} shard=${one.shard} />` },
        { key: 'depth', title: 'Generations above', isNumber: true, cell: (one) => one.depth },
        { key: 'place', title: 'Checkpoint', isLong: true, cell: (one) => one.place?.checkpoint ?? '–' },
        { key: 'why', title: 'Why', isLong: true, cell: (one) => (one.place?.why ?? []).map((why) => why.text).join('; ') || '–' },
      ]} rows=${explained['waits-for']} keyOf=${(one) => one.shard} />`}
      ${explained.workers?.length > 0 && html`<${Table} caption="What each host would do" columns=${[
        { key: 'worker', title: 'Host', cell: (one) => one.worker },
        { key: 'intent', title: 'Would do', isLong: true, cell: (one) => one.intent },
      ]} rows=${explained.workers} keyOf=${(one) => one.worker} />`}
      ${explained['versions-not-run']?.length > 0 && html`<h3>Versions that its hosts do not run</h3><ul>${explained['versions-not-run'].map((one) => html`<li key=${one.digest}><${Digest} digest=${one.digest} /> ${one.text} <span class="quiet">${one.mend}</span></li>`)}</ul>`}
      <details><summary>Full details</summary><${Tree} value=${explained} /></details>
    </section>`;
};

const Letters = ({ shard }) => {
  const { commands, plugin, application } = useConsole();
  const debug = commands.find((one) => one.name === 'debug');
  const poll = usePoll(`letters ${application} ${shard}`, (signal) => lettersOf(debug, application, signal), 10_000);
  const rows = (poll.data ?? []).filter((row) => row.record?.startsWith(`${shard}@`) || row.record?.startsWith(`${shortShard(shard)}@`));
  return html`<section aria-labelledby="letters"><h2 id="letters">Failed batches of this shard</h2>
    ${poll.problem ? html`<p class="quiet">The host cannot show them: ${poll.problem.message}</p>` : poll.data === null ? html`<p class="quiet">Asking the host…</p>` : html`<${Table} caption=${`Failed batches of ${plugin} on this host`} columns=${letterColumns(application)} rows=${rows} keyOf=${(row) => row.file} empty="This host has recorded no failed batch of this shard." many=${20} />`}
  </section>`;
};

export const Shard = ({ route }) => {
  const { application, can, has, commands, session } = useConsole();
  const [asked] = useState(route.name);
  const key = `shard ${application} ${asked}`;
  const poll = usePoll(key, async (signal, before) => {
    const fleet = await getJson(fleetPath(application), signal);
    const shard = fleet.shards.find((one) => one.shard === asked || shortShard(one.shard) === asked) ?? null;
    if (shard) note(key, shard);
    const isOld = !before || Date.now() - before.explainedAt > EXPLAIN_EVERY_MS || before.shard?.verdict !== shard?.verdict || String(before.shard?.wanted) !== String(shard?.wanted);
    if (!isOld) return { ...before, fleet, shard };
    const explained = await look('explain', { application, shard: asked, 'watch-for': '0s' }, signal).then(resultOf).catch((problem) => {
      if (problem.name === 'AbortError' || [0, 401].includes(problem.status)) throw problem;
      return { problem: problem.message };
    });
    return { fleet, shard, explained, explainedAt: Date.now() };
  });
  const { fleet, shard, explained } = poll.data ?? {};
  const id = shard?.shard ?? asked;
  const byId = new Map(fleet?.shards.map((one) => [one.shard, one]) ?? []);
  const isPaused = shard?.verdict === 'paused' || shard?.wanted.some((text) => text.startsWith('pause'));
  const button = (name, words, args = [['shards', id]]) => html`<${CommandLink} name=${name} args=${args}>${words}<//>`;
  return html`
    <${Heading} title=${`Shard ${shortShard(id)}`}>
      <div class="actions">
        ${isPaused ? button('resume', 'Resume') : button('pause', 'Pause')}
        ${button('seek', 'Seek')} ${button('skip', 'Skip a record', [['shard', id]])} ${button('release', 'Release the lease', [['shard', id]])} ${button('reset', 'Reset')}
      </div>
    <//>
    <p class="quiet"><a href=${link('/', [['application', application]])}>Fleet</a> / ${id}</p>
    <${Freshness} poll=${poll} />
    ${poll.data && !shard && html`<${Alert}>${explained?.why?.[0]?.text ?? `The application ${application} has no row of a shard ${asked}.`}<//>`}
    ${shard && html`
      <section aria-labelledby="now"><h2 id="now">Now</h2>
        <p class="verdict-line"><${Verdict} code=${shard.verdict} /> ${verdictOf(shard.verdict).means}${shard['waits-for'] ? html`; it waits for <b>${WAITS[shard['waits-for']] ?? shard['waits-for']}</b>` : ''}</p>
        ${reasonOf(shard) && html`<p class=${shard.verdict === 'stuck' || shard.verdict === 'unheld' ? 'alert bad' : 'alert note'}><span class="sign" aria-hidden="true">${verdictOf(shard.verdict).sign}</span> ${reasonOf(shard)}</p>`}
        ${fleet.paused && html`<${Alert} kind="warn">All shards are paused: ${fleet.paused}<//>`}
        <h3>What operators want</h3>
        ${shard.wanted.length > 0 ? html`<ul>${shard.wanted.map((text) => html`<li key=${text}>${text}</li>`)}</ul>` : html`<p class="quiet">Nothing.</p>`}
        <${Facts} facts=${[
          ['Host', shard.owner ?? 'none'],
          ['Lag', span(lagOf(shard))],
          ['Rate', rate(shard['bytes-per-second'])],
          ['Last settled record arrived', shard['settled-arrival-ms'] ? html`<${Time} ms=${shard['settled-arrival-ms']} />` : null],
          ['Checkpoint', html`<code class="wrap">${shard.checkpoint}</code>`],
          ['State', shard['state-percent'] === null || shard['state-percent'] === undefined ? null : `${shard['state-percent']} % of the limit`],
          ['Version', html`<${Digest} digest=${shard['plugin-digest']} />`],
        ]} />
      </section>
      <${Progress} points=${seen.get(key) ?? []} />
      <${Lineage} byId=${byId} shard=${id} />`}
    ${explained?.problem && html`<${Alert}>There is no explanation: ${explained.problem}<//>`}
    ${explained && !explained.problem && html`<${Explained} explained=${explained} />`}
    ${shard && commands.some((one) => one.name === 'debug') && html`<${Letters} shard=${id} />`}
    ${shard && has('tail') && can('view-data') && html`<${Tail} application=${application} shard=${id} owner=${shard.owner} worker=${session.worker} />`}`;
};
