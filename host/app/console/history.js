// Who did what, when and why.
import { html, useState } from './html.js';
import { look, resultOf, usePoll } from './api.js';
import { Filter, Freshness, Heading, ShardLink, Table, Time, useConsole } from './parts.js';
import { matches, plural } from './text.js';

const POLL_EVERY_MS = 5000;

const columns = [
  { key: 'at', title: 'When', by: (entry) => entry['at-millis'], cell: (entry) => html`<${Time} ms=${entry['at-millis']} />` },
  { key: 'by', title: 'Who', by: (entry) => entry.by, cell: (entry) => entry.by },
  { key: 'deed', title: 'Did', by: (entry) => entry.deed, cell: (entry) => html`<code>${entry.deed}</code>` },
  { key: 'shard', title: 'Shard', by: (entry) => entry.shard, cell: (entry) => (entry.shard ? html`<${ShardLink} shard=${entry.shard} />` : '–') },
  { key: 'details', title: 'What', isLong: true, cell: (entry) => entry.details || '–' },
  { key: 'why', title: 'Why', isLong: true, by: (entry) => entry.why, cell: (entry) => entry.why || '–' },
];

export const History = ({ route }) => {
  const { application } = useConsole();
  const [since, setSince] = useState('7d');
  const [isCommands, setCommands] = useState(false);
  const [text, setText] = useState(route.query.get('filter') ?? '');
  const poll = usePoll(`history ${application} ${since} ${isCommands}`, async (signal) => resultOf(await look('history', { application, since, count: '1000', commands: isCommands && 'true' }, signal)), POLL_EVERY_MS);
  // The answer is an array; a single entry is one too.
  const entries = [poll.data ?? []].flat();
  const rows = entries.filter((entry) => matches(text, `${entry.at} ${entry.by} ${entry.deed} ${entry.shard ?? ''} ${entry.details} ${entry.why}`));
  return html`
    <${Heading} title="History" />
    <${Freshness} poll=${poll} />
    <div class="filters">
      <${Filter} id="history-filter" label="Filter" value=${text} onValue=${setText} count=${poll.data ? `${rows.length} of ${plural(entries.length, 'entry', 'entries')}` : ''} />
      <div class="field inline"><label for="since">How far back</label>
        <select id="since" value=${since} onChange=${(event) => setSince(event.target.value)}>${[['1h', 'an hour'], ['1d', 'a day'], ['7d', 'a week'], ['90d', '90 days']].map(([value, words]) => html`<option key=${value} value=${value} selected=${value === since}>${words}</option>`)}</select></div>
      <div class="field check"><input id="only-commands" type="checkbox" checked=${isCommands} onChange=${(event) => setCommands(event.target.checked)} /><label for="only-commands">Only commands and what followed</label></div>
    </div>
    ${poll.data && html`<${Table} caption=${`History of ${application}`} columns=${columns} rows=${rows} keyOf=${(entry) => `${entry['at-millis']} ${entry.deed} ${entry.shard} ${entry.details} ${entry.by}`} sort=${{ key: 'at', isDown: true }} empty=${text ? 'No entry matches.' : 'Nothing happened in that time.'} />`}`;
};
