// The versions of the plugin on each host, and those in quarantine.
import { html } from './html.js';
import { look, resultOf, usePoll } from './api.js';
import { Alert, CommandLink, Digest, Freshness, Heading, Table, Time, useConsole } from './parts.js';
import { plural } from './text.js';

const POLL_EVERY_MS = 5000;
// What a version is when nothing is wrong or under way.
const SETTLED = 'active';
const BAD = new Set(['quarantined', 'refused', 'crash-looping']);

const State = ({ state }) => html`<span class=${`badge ${state === SETTLED ? 'v-moving' : BAD.has(state) ? 'v-stuck' : 'v-catching-up'}`}><span class="sign" aria-hidden="true">${state === SETTLED ? '✓' : BAD.has(state) ? '!' : '…'}</span> ${state}</span>`;

const Fleet = ({ report, isOwn }) => {
  const rows = report.hosts.flatMap((host) => (host.versions.length > 0 ? host.versions.map((version, at) => ({ host, version, at })) : [{ host, version: null, at: 0 }]));
  const digests = new Set(report.hosts.filter((host) => host['is-alive']).map((host) => host.versions[0]?.digest).filter(Boolean));
  const columns = [
    { key: 'host', title: 'Host', cell: ({ host }) => html`${host.host}${host['is-alive'] ? '' : html` <span class="badge s-dead">${host.life}</span>`}`, by: ({ host }) => host.host },
    { key: 'version', title: 'Version', cell: ({ version }) => html`<${Digest} digest=${version?.digest} />`, by: ({ version }) => version?.digest },
    { key: 'state', title: 'State', cell: ({ version }) => (version ? html`<${State} state=${version.state} />` : html`<span class="quiet">no version</span>`), by: ({ version }) => version?.state },
    { key: 'since', title: 'Since', cell: ({ version }) => html`<${Time} ms=${version?.['since-ms']} />`, by: ({ version }) => version?.['since-ms'] },
    { key: 'why', title: 'Why', isLong: true, cell: ({ version }) => version?.reason ?? '–' },
    { key: 'do', title: 'Change', cell: ({ version }) => (isOwn && version ? html`<${CommandLink} name="plugins" args=${[['pin', version.digest]]} kind="small">pin<span class="hidden"> version ${version.digest.slice(0, 12)}</span><//>` : '') },
  ];
  const quarantine = [
    { key: 'version', title: 'Version', cell: (one) => html`<${Digest} digest=${one.digest} />` },
    { key: 'host', title: 'Found by', cell: (one) => one.host },
    { key: 'at', title: 'At', cell: (one) => html`<${Time} ms=${one['at-ms']} />` },
    { key: 'why', title: 'Why', isLong: true, cell: (one) => one.reason },
    { key: 'do', title: 'Change', cell: (one) => html`<${CommandLink} name="plugins" args=${[['application', report.application], ['release', one.digest]]} kind="small">release<span class="hidden"> version ${one.digest.slice(0, 12)}</span><//>` },
  ];
  const { can } = useConsole();
  const mine = can('operate') || can('admin');
  return html`
    <section aria-label=${report.application}><h2>${report.application}</h2>
      ${report['is-mixed']
        ? html`<${Alert} kind="warn">Its live hosts run ${plural(digests.size, 'version')}.<//>`
        : html`<${Alert} kind="good">${digests.size > 0 ? 'All its live hosts run the same version.' : 'No host runs a version.'}<//>`}
      <${Table} caption=${`Versions by host of ${report.application}`} columns=${mine ? columns : columns.slice(0, 5)} rows=${rows} keyOf=${({ host, at }) => `${host.host} ${at}`} empty="No host is registered." />
      ${report.quarantined.length > 0 && html`<${Table} caption=${`Versions of ${report.application} in quarantine`} columns=${mine ? quarantine : quarantine.slice(0, 4)} rows=${report.quarantined} keyOf=${(one) => `${one.digest} ${one.host}`} />`}
    </section>`;
};

export const Plugins = () => {
  const { application } = useConsole();
  const poll = usePoll(`plugins ${application}`, async (signal) => [resultOf(await look('plugins', { application }, signal))].flat(), POLL_EVERY_MS);
  return html`
    <${Heading} title="Plugins"><div class="actions">
      <${CommandLink} name="plugins" args=${[['rollback', 'true']]}>Roll back this host<//> <${CommandLink} name="plugins" args=${[['unpin', 'true']]}>Unpin this host<//>
    </div><//>
    <p class="lead">A version is the digest of the component. A pin or a rollback applies to the host that serves this console; a release from quarantine applies to the fleet.</p>
    <${Freshness} poll=${poll} />
    ${poll.data?.map((report) => html`<${Fleet} key=${report.application} report=${report} isOwn=${report.application === application} />`)}
    ${poll.data?.length === 0 && html`<p class="quiet">No host has served an application here.</p>`}`;
};
