// What passes through a shard, as it happens.
import { html, useEffect, useRef, useState } from './html.js';
import { request, Problem } from './api.js';
import { clock } from './text.js';
import { Alert } from './parts.js';

const LINES_MAX = 500;
const DRAW_EVERY_MS = 250;
const AGAIN_MS = 2000;
// What is asked for, and what an event calls itself.
const KINDS = [['records', 'records'], ['outputs', 'outputs'], ['failures', 'failures'], ['log', 'log lines'], ['only-at-work', 'only at work'], ['only-shadow', 'only shadow']];

// Reads events from a response until it ends. An event is lines that begin with "data:", up to an empty one.
const readEvents = async (response, onEvent) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value.replace(/\r/g, '');
    const events = rest.split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart()).join('\n');
      if (data === '') continue;
      let told = null;
      try { told = JSON.parse(data); } catch { /* not for us */ }
      if (told) onEvent(told);
    }
  }
};

export const Tail = ({ application, shard, owner, worker }) => {
  const [isOn, setOn] = useState(false);
  const [isHeld, setHeld] = useState(false);
  const [kinds, setKinds] = useState(KINDS.map(([kind]) => kind));
  const [contains, setContains] = useState('');
  const [key, setKey] = useState('');
  const [asked, setAsked] = useState({ contains: '', key: '' });
  const [, draw] = useState(0);
  const [problem, setProblem] = useState(null);
  const told = useRef({ lines: [], shown: [], dropped: 0, missed: 0, next: 0 });
  const held = useRef(false);
  held.current = isHeld;

  useEffect(() => {
    if (!isOn) return undefined;
    let isOver = false;
    let abort = null;
    let timer = 0;
    const onEvent = (event) => {
      const all = told.current;
      if (event.what === 'dropped') { all.dropped += event.count ?? 0; return; }
      all.lines.push({ ...event, n: all.next });
      all.next += 1;
      if (held.current) all.missed += 1;
      if (all.lines.length > LINES_MAX) all.lines.splice(0, all.lines.length - LINES_MAX);
    };
    const connect = async () => {
      clearTimeout(timer);
      if (isOver || document.hidden || abort) return;
      const mine = new AbortController();
      abort = mine;
      const query = new URLSearchParams({ application, shard, what: kinds.join(',') });
      if (asked.contains) query.set('contains', asked.contains);
      if (asked.key) query.set('key', asked.key);
      try {
        const response = await request(`/api/v1/tail?${query}`, { signal: mine.signal });
        setProblem(null);
        await readEvents(response, onEvent);
      } catch (error) {
        if (abort === mine) setProblem(error instanceof Problem ? error : new Problem(0, 'The host does not answer.'));
        if ([401, 403, 404].includes(error.status)) { isOver = true; setOn(false); }
      }
      if (abort === mine) {
        abort = null;
        if (!isOver) timer = setTimeout(connect, AGAIN_MS);
      }
    };
    const stop = () => {
      clearTimeout(timer);
      const mine = abort;
      abort = null;
      mine?.abort();
    };
    const onVisible = () => (document.hidden ? stop() : connect());
    const drawing = setInterval(() => {
      if (held.current || document.hidden) return;
      const all = told.current;
      all.missed = 0;
      const last = all.lines[all.lines.length - 1]?.n;
      if (last === all.shown[all.shown.length - 1]?.n && all.dropped === all.drawn) return;
      all.shown = all.lines.slice();
      all.drawn = all.dropped;
      draw((n) => n + 1);
    }, DRAW_EVERY_MS);
    document.addEventListener('visibilitychange', onVisible);
    connect();
    return () => {
      isOver = true;
      stop();
      clearInterval(drawing);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [isOn, application, shard, kinds.join(','), asked]);

  const toggle = (kind) => setKinds((now) => (now.includes(kind) ? now.filter((one) => one !== kind) : [...now, kind]));
  const clear = () => {
    told.current = { lines: [], shown: [], dropped: 0, missed: 0, next: told.current.next };
    draw((n) => n + 1);
  };
  const submit = (event) => {
    event.preventDefault();
    if (kinds.length === 0) return;
    setAsked({ contains, key });
    setHeld(false);
    setOn(true);
  };
  const { shown, dropped } = told.current;
  return html`
    <section aria-labelledby="tail"><h2 id="tail">Live tail</h2>
      <p class="quiet">What the host does with this shard from now on. Nothing is stored; the page shows the last ${LINES_MAX} lines.</p>
      ${owner !== worker && html`<${Alert} kind="note">${owner ? `${owner} holds the shard` : 'No host holds the shard'}, but ${worker} serves this console, and it sees only the shards that it holds itself.<//>`}
      <form class="filters" onSubmit=${submit}>
        <fieldset class="checks"><legend>Show</legend>${KINDS.map(([kind, words]) => html`<span class="field check" key=${kind}><input type="checkbox" id=${`tail-${kind}`} checked=${kinds.includes(kind)} onChange=${() => toggle(kind)} /><label for=${`tail-${kind}`}>${words}</label></span>`)}</fieldset>
        <div class="field inline"><label for="tail-contains">Contains</label><input id="tail-contains" type="text" autocomplete="off" spellcheck=${false} value=${contains} onInput=${(event) => setContains(event.target.value)} /></div>
        <div class="field inline"><label for="tail-key">Partition key</label><input id="tail-key" type="text" autocomplete="off" spellcheck=${false} value=${key} onInput=${(event) => setKey(event.target.value)} /></div>
        <button type="submit" class="button" disabled=${kinds.length === 0}>${isOn ? 'Apply' : 'Start'}</button>
        ${isOn && html`<button type="button" class="button" aria-pressed=${isHeld} onClick=${() => setHeld(!isHeld)}>${isHeld ? 'Continue' : 'Hold'}</button> <button type="button" class="button" onClick=${() => setOn(false)}>Stop</button>`}
        ${shown.length > 0 && html`<button type="button" class="button" onClick=${clear}>Clear</button>`}
      </form>
      <div role="status">${problem && html`<${Alert}>${problem.message}<//>`}
        ${isHeld && html`<p class="quiet">Held. New lines wait until you continue.</p>`}
        ${dropped > 0 && html`<p class="alert warn"><span class="sign" aria-hidden="true">!</span> ${dropped.toLocaleString('en')} dropped: more arrived than the host can send.</p>`}
        ${isOn && !problem && shown.length === 0 && html`<p class="quiet">Waiting for the first line…</p>`}</div>
      ${shown.length > 0 && html`<div class="tail" tabindex="0" role="log" aria-live="off" aria-label="Lines of the live tail"><ol>
        ${shown.map((line) => html`<li key=${line.n} class=${line.what === 'failure' ? 't-failure' : ''}>
          <span class="quiet">${clock(line['at-ms'])} ${line.what}${line.destination ? ` to ${line.destination}` : ''}</span>${line.key ? html` <b>${line.key}</b>` : ''}${line.sequence ? html` <span class="quiet" title=${line.sequence}>…${line.sequence.slice(-8)}</span>` : ''} <span class="tail-text">${line.text}</span>${line['is-cut'] ? html` <span class="quiet">cut; ${line.bytes} bytes in total</span>` : ''}</li>`)}
      </ol></div>`}
    </section>`;
};
