// The lease table.
import { html, useState } from './html.js';
import { look, resultOf, usePoll } from './api.js';
import { Digest, Filter, Freshness, Heading, ShardLink, Table, Time, useConsole } from './parts.js';
import { matches, plural, rate, span } from './text.js';

const POLL_EVERY_MS = 5000;
const END = 'SHARD_END';

const isOver = (lease) => lease.checkpoint === END;

const columns = [
  { key: 'shard', title: 'Shard', by: (lease) => lease.shard, cell: (lease) => html`<${ShardLink} shard=${lease.shard} />` },
  { key: 'owner', title: 'Owner', by: (lease) => lease.owner, cell: (lease) => html`${lease.owner ?? '–'}${lease['owner-life'] && lease['owner-life'] !== 'live' && lease['owner-life'] !== 'unwatched' ? html` <span class="badge s-dead">${lease['owner-life']}</span>` : ''}` },
  { key: 'since', title: 'Held since', by: (lease) => (lease.owner ? lease['held-since-ms'] : null), cell: (lease) => html`<${Time} ms=${lease.owner ? lease['held-since-ms'] : null} />` },
  { key: 'lag', title: 'Lag', isNumber: true, by: (lease) => (isOver(lease) ? null : lease['millis-behind-latest']), cell: (lease) => (isOver(lease) ? '–' : span(lease['millis-behind-latest'])) },
  { key: 'settled', title: 'Settled up to', by: (lease) => lease['settled-arrival-ms'], cell: (lease) => html`<${Time} ms=${lease['settled-arrival-ms']} />` },
  { key: 'rate', title: 'Rate', isNumber: true, by: (lease) => lease['bytes-per-second'], cell: (lease) => rate(lease['bytes-per-second']) },
  { key: 'checkpoint', title: 'Checkpoint', by: (lease) => lease.checkpoint, cell: (lease) => html`<code>${lease.checkpoint}</code>` },
  { key: 'counter', title: 'Counter', isNumber: true, by: (lease) => lease.counter, cell: (lease) => lease.counter.toLocaleString('en') },
  { key: 'plugin', title: 'Version', by: (lease) => lease['plugin-digest'], cell: (lease) => html`<${Digest} digest=${lease['plugin-digest']} />` },
  { key: 'stuck', title: 'Stuck', isLong: true, by: (lease) => lease.stuck, cell: (lease) => (lease.stuck ? html`<span class="bad">${lease.stuck}</span>` : '–') },
  { key: 'wanted', title: 'Wanted', isLong: true, by: (lease) => lease.wanted.join('; ') || null, cell: (lease) => lease.wanted.join('; ') || '–' },
  { key: 'claimed', title: 'Claimed by', by: (lease) => lease['claimed-by'], cell: (lease) => lease['claimed-by'] ?? '–' },
  { key: 'parents', title: 'Parents', cell: (lease) => (lease.parents.length > 0 ? lease.parents.map((shard) => html`<${ShardLink} key=${shard} shard=${shard} /> `) : '–') },
  { key: 'children', title: 'Children', cell: (lease) => (lease.children.length > 0 ? lease.children.map((shard) => html`<${ShardLink} key=${shard} shard=${shard} /> `) : '–') },
];

export const Leases = ({ route }) => {
  const { application } = useConsole();
  const [text, setText] = useState(route.query.get('filter') ?? '');
  const [isOpen, setOpen] = useState(false);
  const poll = usePoll(`leases ${application}`, async (signal) => [resultOf(await look('leases', { application }, signal))].flat(), POLL_EVERY_MS);
  const leases = poll.data ?? [];
  const rows = leases.filter((lease) => (!isOpen || !isOver(lease)) && matches(text, `${lease.shard} ${lease.owner ?? 'none'} ${lease.checkpoint} ${lease['plugin-digest'] ?? ''} ${lease.stuck ?? ''} ${lease.wanted.join(' ')}`));
  return html`
    <${Heading} title="Leases" />
    <${Freshness} poll=${poll} />
    <div class="filters">
      <${Filter} id="leases-filter" label="Filter" value=${text} onValue=${setText} count=${poll.data ? `${rows.length.toLocaleString('en')} of ${plural(leases.length, 'lease')}` : ''} />
      <div class="field check"><input id="only-open" type="checkbox" checked=${isOpen} onChange=${(event) => setOpen(event.target.checked)} /><label for="only-open">Only shards that are not finished</label></div>
    </div>
    ${poll.data && html`<${Table} caption=${`Leases of ${application}`} columns=${columns} rows=${rows} keyOf=${(lease) => lease.shard} sort=${{ key: 'shard', isDown: false }} empty=${text ? 'No lease matches.' : 'There are no leases yet.'} />`}`;
};
