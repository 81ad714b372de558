// Failed batches: the recordings on this host, and a rerun of one of them.
import { html, useState } from './html.js';
import { look, resultOf, usePoll, Problem } from './api.js';
import { link } from './route.js';
import { matches, plural, shortShard } from './text.js';
import { Alert, CommandLine, Digest, Filter, Freshness, Heading, Table, Time, Tree, useConsole } from './parts.js';

const POLL_EVERY_MS = 5000;

// `debug` names its arguments as its definition does: the application first, then the record.
const positionals = (debug) => debug.arguments.filter((one) => one['is-positional']).map((one) => one.name);

export const lettersOf = async (debug, application, signal) => {
  if (!debug) throw new Problem(403, 'You may not see failed batches.');
  const rows = resultOf(await look('debug', { [positionals(debug)[0]]: application }, signal));
  const all = Array.isArray(rows) ? rows : [rows];
  return all.sort((a, b) => (b['at-ms'] ?? 0) - (a['at-ms'] ?? 0));
};

const shortRecord = (record) => {
  const [shard, sequence = ''] = record.split('@');
  return `${shortShard(shard)}@${sequence.length > 14 ? `…${sequence.slice(-12)}` : sequence}`;
};

export const letterColumns = (application) => [
  { key: 'record', title: 'First record', by: (row) => row.record, cell: (row) => (row.record ? html`<a title=${row.record} href=${link('/letters', [['application', application], ['record', row.record]])}>${shortRecord(row.record)}</a>` : html`<span title=${row.file}>unreadable</span>`) },
  { key: 'at', title: 'At', by: (row) => row['at-ms'], cell: (row) => html`<${Time} ms=${row['at-ms']} />` },
  { key: 'records', title: 'Records', isNumber: true, by: (row) => row.records, cell: (row) => row.records ?? '–' },
  { key: 'attempt', title: 'Delivery', isNumber: true, by: (row) => row.attempt, cell: (row) => row.attempt ?? '–' },
  { key: 'digest', title: 'Version', cell: (row) => html`<${Digest} digest=${row.digest} />` },
  { key: 'why', title: 'Why', isLong: true, by: (row) => row.message, cell: (row) => row.problem ?? row.message ?? '–' },
];

const dataOf = (output) => output.data ?? (output['data-base64'] ? `base64: ${output['data-base64']}` : '');

const LIKENESS = {
  same: ['good', 'It fails as before.'],
  'fails-otherwise': ['warn', 'It fails, but differently than before.'],
  'does-not-fail': ['warn', 'It does not fail this time.'],
};

const Run = ({ title, run }) => {
  const [kind, words] = LIKENESS[run.likeness] ?? ['note', run.likeness];
  return html`
    <section aria-label=${title}><h2>${title}</h2>
      <${Alert} kind=${kind}>${words}<//>
      <dl class="facts"><div><dt>Version</dt><dd><${Digest} digest=${run.digest} /></dd></div><div><dt>Call</dt><dd>${run.call}</dd></div><div><dt>Fuel</dt><dd>${Number(run.fuel).toLocaleString('en')}</dd></div></dl>
      ${run.error && html`<h3>Message</h3><pre class="block" tabindex="0" aria-label="Message">${run.error}</pre>`}
      <h3>Records that failed</h3>
      ${run.failures.length === 0 ? html`<p class="quiet">The plugin reported none.</p>` : html`<${Table} caption="Records that the plugin reported" columns=${[
        { key: 'index', title: 'Record', isNumber: true, cell: (one) => one.index + 1 },
        { key: 'kind', title: 'Kind', cell: (one) => one.kind },
        { key: 'message', title: 'Message', isLong: true, cell: (one) => one.message },
      ]} rows=${run.failures} />`}
      <h3>Output</h3>
      ${run.output.length === 0 ? html`<p class="quiet">It emitted nothing.</p>` : html`<${Table} caption="What it emitted; nothing is stored" columns=${[
        { key: 'to', title: 'To', cell: (one) => one.destination },
        { key: 'key', title: 'Key', cell: (one) => one.key },
        { key: 'data', title: 'Data', isLong: true, cell: (one) => html`<code class="wrap">${dataOf(one)}</code>` },
      ]} rows=${run.output} many=${100} />`}
      <h3>Log</h3>
      ${run.log.length === 0 ? html`<p class="quiet">It logged nothing.</p>` : html`<pre class="block" tabindex="0" aria-label="Log">${run.log.join('\n')}</pre>`}
    </section>`;
};

const Letter = ({ application, record }) => {
  const { commands, can } = useConsole();
  const debug = commands.find((one) => one.name === 'debug');
  const mayOpen = debug && can('view-data') && positionals(debug).length > 1;
  const [state, set] = useState({ answer: null, problem: null, isBusy: false });
  const open = async () => {
    set({ answer: null, problem: null, isBusy: true });
    const [what, which] = positionals(debug);
    try {
      const answer = await look('debug', { [what]: application, [which]: record });
      set({ answer, result: resultOf(answer), problem: null, isBusy: false });
    } catch (problem) {
      set({ answer: null, problem, isBusy: false });
    }
  };
  const { answer, result, problem, isBusy } = state;
  const recorded = result?.recorded;
  return html`
    <p><a href=${link('/letters', [['application', application]])}>All failed batches</a></p>
    <p>Record <code class="wrap">${record}</code></p>
    ${!mayOpen ? html`<${Alert} kind="note">You may not see record data, so you cannot open this batch.<//>` : html`
      <p>The host runs the batch again, outside the fleet, with the same records, state, settings and version. The plugin gets no network, and nothing that it emits is stored.</p>
      <p><button type="button" class="button main" disabled=${isBusy} onClick=${open}>${isBusy ? 'Running…' : 'Run it again'}</button></p>
      <div aria-live="polite">
        ${problem && html`<${Alert}>${problem.message}<//>`}
        ${answer?.problem && html`<${Alert} kind="warn">${answer.problem}<//>`}
        ${recorded && html`
          <section aria-label="What was recorded"><h2>What was recorded</h2>
            <pre class="block" tabindex="0" aria-label="Message that was recorded">${recorded.message}</pre>
            <dl class="facts">
              ${[['Code', recorded.code], ['Shard', recorded.shard], ['Host', recorded.worker], ['Stream', recorded.stream], ['Delivery', recorded.attempt], ['Records', recorded.records], ['First', recorded.first], ['Last', recorded.last], ['State', recorded['state-bytes'] === null ? 'none' : `${recorded['state-bytes']} bytes`]].map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd class="wrap">${value}</dd></div>`)}
              <div><dt>At</dt><dd><${Time} ms=${recorded['at-ms']} /></dd></div></dl></section>`}
        ${result?.again && html`<${Run} title="Run again" run=${result.again} />`}
        ${result?.compared && html`<${Run} title="The other version" run=${result.compared} />`}
        ${result && !result.again && html`<${Tree} value=${result} />`}
        ${answer && html`<${CommandLine} line=${answer['command-line']} />`}
      </div>`}`;
};

const List = ({ application }) => {
  const { commands } = useConsole();
  const debug = commands.find((one) => one.name === 'debug');
  const [text, setText] = useState('');
  const poll = usePoll(`letters ${application}`, (signal) => lettersOf(debug, application, signal), POLL_EVERY_MS);
  const rows = (poll.data ?? []).filter((row) => matches(text, `${row.record ?? ''} ${row.message ?? ''} ${row.problem ?? ''} ${row.digest ?? ''} ${row.file ?? ''}`));
  return html`
    <p class="lead">The failed batches that this host recorded. Other hosts have their own.</p>
    <${Freshness} poll=${poll} />
    ${poll.data && html`
      <${Filter} id="letters-filter" label="Filter" value=${text} onValue=${setText} count=${`${rows.length} of ${plural(poll.data.length, 'batch', 'batches')}`} />
      <${Table} caption=${`Failed batches of ${application}`} columns=${letterColumns(application)} rows=${rows} keyOf=${(row) => row.file} sort=${{ key: 'at', isDown: true }} empty=${text ? 'No failed batch matches.' : 'This host has recorded no failed batch.'} />`}`;
};

export const Letters = ({ route }) => {
  const { application } = useConsole();
  const record = route.query.get('record');
  return html`
    <${Heading} title=${record ? 'Failed batch' : 'Failed batches'} key=${record ?? ''} />
    ${record ? html`<${Letter} application=${application} record=${record} key=${record} />` : html`<${List} application=${application} />`}`;
};
