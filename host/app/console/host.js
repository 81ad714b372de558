// The page of the host that answers: its own status, whole.
import { html } from './html.js';
import { getJson, usePoll } from './api.js';
import { Freshness, Heading, Tree } from './parts.js';

export const Host = () => {
  const poll = usePoll('host', (signal) => getJson('/status', signal));
  return html`
    <${Heading} title="This host" />
    <p class="lead">The status of the host that serves this console.</p>
    <${Freshness} poll=${poll} />
    ${poll.data && html`<section aria-label="Status"><${Tree} value=${poll.data} /></section>`}`;
};
