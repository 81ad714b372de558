// Every command of the session, each with a form made from its definition.
import { html, useEffect, useRef, useState } from './html.js';
import { look, run, tell } from './api.js';
import { link } from './route.js';
import { plural, span } from './text.js';
import { Alert, CommandLine, Heading, ShardLink, Table, Tree, useConsole } from './parts.js';

// What the page itself handles.
const OWN = new Set(['apply', 'why']);
const RIGHTS = { view: 'View', 'view-data': 'View data', operate: 'Change the fleet', admin: 'Administer' };
const COLUMNS_MAX = 12;

const isDrivenByPage = (argument) => argument.name === 'application' && argument['is-positional'];
const changesFleet = (argument) => argument.right === 'operate' || argument.right === 'admin';

// What the fields hold at first: what the address says, then what is known.
const initial = (command, query, console_) => {
  const values = {};
  for (const argument of command.arguments) {
    const given = query.getAll(argument.name);
    if (OWN.has(argument.name)) continue;
    if (isDrivenByPage(argument)) values[argument.name] = console_.application;
    else if (argument.kind === 'flag') values[argument.name] = given.length > 0 && given[0] !== 'false';
    else if (given.length > 0) values[argument.name] = argument.repeats ? given.join('\n') : given[0];
    else if (argument['is-positional'] && /APPLICATION/.test(argument['value-name'] ?? '')) values[argument.name] = console_.application;
    else if (argument.name === 'stream' && argument['is-required']) values[argument.name] = console_.session.applications.find((one) => one.application === console_.application)?.stream ?? '';
    else values[argument.name] = '';
  }
  return values;
};

// The values as the API takes them: nothing for what is left out.
const toArguments = (command, values) => {
  const args = {};
  for (const argument of command.arguments) {
    const value = values[argument.name];
    if (OWN.has(argument.name) || value === undefined || value === '' || value === false) continue;
    if (argument.kind === 'flag') args[argument.name] = true;
    else if (argument.repeats) {
      const lines = value.split('\n').map((line) => line.trim()).filter(Boolean);
      if (lines.length > 0) args[argument.name] = lines;
    } else args[argument.name] = value;
  }
  return args;
};

const pairs = (args) => Object.entries(args).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, String(one)]));

const title = (argument) => (argument['is-positional'] ? argument.name : `--${argument.name}`);

const Field = ({ argument, value, onValue }) => {
  const id = `arg-${argument.name}`;
  const help = `${id}-help`;
  const more = [argument['is-required'] && 'required', argument.repeats && 'one per line', argument.default !== null && argument.default !== undefined && argument.kind !== 'flag' && `default ${argument.default}`].filter(Boolean);
  const label = html`<label for=${id}><code>${title(argument)}</code>${argument['value-name'] && argument.kind === 'text' && !argument['is-positional'] ? html` <span class="quiet">${argument['value-name']}</span>` : ''}${more.length > 0 && html` <span class="quiet">(${more.join(', ')})</span>`}</label>`;
  const text = html`<p class="help" id=${help}>${argument.help}</p>`;
  const onInput = (event) => onValue(event.target.value);
  if (argument.kind === 'flag') {
    return html`<div class="field flag"><div class="check"><input type="checkbox" id=${id} checked=${value} aria-describedby=${help} onChange=${(event) => onValue(event.target.checked)} />${label}</div>${text}</div>`;
  }
  if (argument.kind === 'choice' && !argument.repeats) {
    return html`<div class="field">${label}<select id=${id} value=${value} aria-describedby=${help} required=${argument['is-required']} onChange=${onInput}>
      <option value="">${argument.default ?? 'not given'}</option>
      ${argument.choices.map((one) => html`<option key=${one} value=${one} selected=${one === value}>${one}</option>`)}</select>${text}</div>`;
  }
  if (argument.repeats) {
    return html`<div class="field">${label}<textarea id=${id} rows="3" value=${value} aria-describedby=${help} required=${argument['is-required']} autocomplete="off" spellcheck=${false} onInput=${onInput} />${text}</div>`;
  }
  return html`<div class="field">${label}<input id=${id} type="text" value=${value} aria-describedby=${help} required=${argument['is-required']} placeholder=${argument.default ?? ''} autocomplete="off" spellcheck=${false} onInput=${onInput} />${text}</div>`;
};

const isShard = (text) => /^shardId-\d+$/.test(text);

const Steps = ({ steps }) => html`<${Table} caption="Steps" columns=${[
  { key: 'what', title: 'What', cell: (step) => (isShard(step.what) ? html`<${ShardLink} shard=${step.what} />` : step.what) },
  { key: 'now', title: 'Now', isLong: true, cell: (step) => step.now },
  { key: 'then', title: 'Then', isLong: true, cell: (step) => (step.refused ? html`<span class="quiet">unchanged</span>` : step.then) },
  { key: 'by', title: 'By', cell: (step) => step.by ?? '–' },
  { key: 'refused', title: 'Refused', isLong: true, cell: (step) => (step.refused ? html`<span class="bad"><span class="sign" aria-hidden="true">!</span> ${step.refused}</span>` : '–') },
]} rows=${steps} empty="There is nothing to do." />`;

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

// An answer of any shape.
export const Result = ({ result }) => {
  if (isObject(result) && Array.isArray(result.steps)) {
    const { steps, notes, waited, ...rest } = result;
    const others = Object.entries(rest).filter(([name]) => !['application', 'command', 'applied'].includes(name));
    return html`
      <${Steps} steps=${steps} />
      ${notes?.map((note) => html`<${Alert} kind="note" key=${note}>${note}<//>`)}
      ${waited && (waited.left.length === 0
        ? html`<${Alert} kind="good">Done by the hosts after ${span(waited.millis)}.<//>`
        : html`<${Alert} kind="warn">After ${span(waited.millis)}, ${plural(waited.left.length, 'shard is', 'shards are')} not done: ${waited.left.slice(0, 20).join(', ')}. The change stays pending.<//>`)}
      ${others.length > 0 && html`<${Tree} value=${Object.fromEntries(others)} />`}`;
  }
  if (Array.isArray(result) && result.length > 0 && result.every(isObject)) {
    const names = [...new Set(result.slice(0, 100).flatMap(Object.keys))];
    if (names.length <= COLUMNS_MAX + 8) {
      const columns = names.map((name) => ({ key: name, title: name, isLong: true, by: (row) => (typeof row[name] === 'object' ? null : row[name]), cell: (row) => html`<${Tree} value=${row[name]} />` }));
      return html`<${Table} caption="Answer" columns=${columns} rows=${result} />`;
    }
  }
  if (isObject(result) && Array.isArray(result.refused) && result.refused.every((why) => typeof why === 'string')) {
    const { refused, notes, ...rest } = result;
    return html`${refused.map((why) => html`<${Alert} key=${why}>${why}<//>`)}${notes?.map((note) => html`<${Alert} kind="note" key=${note}>${note}<//>`)}<${Tree} value=${rest} />`;
  }
  if (typeof result === 'string') return html`<pre class="block" tabindex="0" aria-label="Answer">${result}</pre>`;
  return html`<${Tree} value=${result} />`;
};

const Answer = ({ answer }) => html`
  ${answer.problem && html`<${Alert} kind="warn">${answer.problem}<//>`}
  ${(answer.results ?? []).map((result, at) => html`<${Result} key=${at} result=${result} />`)}
  ${(answer.results ?? []).length === 0 && !answer.problem && html`<p class="quiet">The command printed nothing.</p>`}
  ${answer['command-line'] && html`<${CommandLine} line=${answer['command-line']} />`}`;

// Whether the answer to a dry run says that something would be done.
const hasSomethingToDo = (answer) => (answer.results ?? []).length > 0 && answer.results.every((result) => !(result?.refused?.length > 0) && (!Array.isArray(result?.steps) || result.steps.some((step) => !step.refused)));

const Form = ({ command, route }) => {
  const about = useConsole();
  const [values, setValues] = useState(() => initial(command, route.query, about));
  const [why, setWhy] = useState('');
  const [isSure, setSure] = useState(false);
  const [state, set] = useState({ kind: 'blank' });
  const [focus, setFocus] = useState(0);
  const head = useRef(null);
  const version = useRef(0);
  // A second press comes before the button is drawn as disabled.
  const isRunning = useRef(false);
  useEffect(() => { if (focus > 0) head.current?.focus(); }, [focus]);

  const shown = command.arguments.filter((one) => !OWN.has(one.name) && about.can(one.right ?? command.right));
  const hasApply = command.arguments.some((one) => one.name === 'apply') && about.can(command.arguments.find((one) => one.name === 'apply').right ?? command.right);
  const hasDry = command.arguments.some((one) => one.name === 'apply');
  const isBusy = state.kind === 'asking' || state.kind === 'doing';
  const args = toArguments({ ...command, arguments: shown }, values);
  // Such an argument takes effect at once: there is no dry run.
  const isAtOnce = !hasDry && shown.some((one) => changesFleet(one) && args[one.name] !== undefined && (!one['is-positional'] || changesFleet({ right: command.right })));

  const change = (name, value) => {
    version.current += 1;
    setValues({ ...values, [name]: value });
    setSure(false);
    set((now) => ({ kind: ['dry', 'asking', 'withdrawn'].includes(now.kind) ? 'withdrawn' : 'blank' }));
  };
  const ask = async (kind, work) => {
    if (isRunning.current) return;
    isRunning.current = true;
    const mine = version.current;
    set((now) => ({ ...now, kind: kind === 'done' ? 'doing' : 'asking', problem: null }));
    try {
      const answer = await work();
      if (version.current !== mine && kind === 'dry') return;
      set({ kind, answer });
    } catch (problem) {
      set({ kind: 'failed', problem });
    } finally {
      isRunning.current = false;
    }
    if (kind !== 'shown' && kind !== 'dry') tell('changed');
    setFocus((n) => n + 1);
  };
  const submit = (event) => {
    event.preventDefault();
    if (isBusy) return;
    history.replaceState(null, '', link(`/commands/${command.name}`, [['application', about.application], ...pairs(args).filter(([name]) => name !== 'application')]));
    if (hasDry) ask('dry', () => run(command.name, { ...args, apply: false }));
    else if (isAtOnce) ask('done', () => run(command.name, args));
    else ask('shown', () => look(command.name, args));
  };
  const apply = (event) => {
    event.preventDefault();
    if (isBusy || why.trim() === '') return;
    ask('done', () => run(command.name, { ...args, apply: true, why: why.trim() }));
  };
  const words = hasDry ? 'Show what it would do' : isAtOnce ? 'Do it at once' : 'Show';
  const titles = { dry: 'What it would do', done: 'What was done', shown: 'Answer', failed: 'It was refused' };
  return html`
    <form class="command" onSubmit=${submit} aria-label=${`Arguments of ${command.name}`}>
      <fieldset disabled=${isBusy} class="bare"><legend class="hidden">Arguments</legend>
        ${shown.some(isDrivenByPage) && html`<p>Application <b>${about.application}</b> <span class="quiet">(chosen at the top)</span></p>`}
        ${shown.filter((one) => !isDrivenByPage(one)).map((one) => html`<${Field} key=${one.name} argument=${one} value=${values[one.name]} onValue=${(value) => change(one.name, value)} />`)}
        ${isAtOnce && html`<div class="field flag"><div class="check"><input type="checkbox" id="sure" checked=${isSure} required onChange=${(event) => setSure(event.target.checked)} /><label for="sure">I understand that this takes effect at once, without a dry run.</label></div></div>`}
        <p><button type="submit" class="button main">${words}</button></p>
      </fieldset>
    </form>
    <div role="status">${state.kind === 'asking' && html`<p class="quiet">Asking the host…</p>`}
      ${state.kind === 'doing' && html`<p class="quiet">Waiting for the hosts to do it…</p>`}
      ${state.kind === 'withdrawn' && html`<${Alert} kind="warn">The arguments changed. Show what it would do again.<//>`}</div>
    ${titles[state.kind] && html`
      <section class="answer" aria-labelledby="answer"><h2 id="answer" tabindex="-1" ref=${head}>${state.kind === 'failed' && state.problem.status === 0 ? 'It did not work' : titles[state.kind]}</h2>
        ${state.problem && html`<${Alert}>${state.problem.message}<//>`}
        ${state.answer && html`<${Answer} answer=${state.answer} />`}
        ${state.kind === 'dry' && hasApply && (hasSomethingToDo(state.answer) ? html`
          <form class="apply" onSubmit=${apply} aria-label="Do it">
            <div class="field"><label for="why">Reason <span class="quiet">(required)</span></label>
              <input id="why" type="text" required value=${why} autocomplete="off" aria-describedby="why-help" onInput=${(event) => setWhy(event.target.value)} />
              <p class="help" id="why-help">Hosts show it, and the history keeps it with your name.</p></div>
            <p><button type="submit" class="button danger">Do it</button></p>
          </form>` : html`<p class="quiet">There is nothing to apply.</p>`)}
        ${state.kind === 'dry' && !hasApply && html`<p class="quiet">You may see what it would do, but not do it.</p>`}
      </section>`}`;
};

const Group = ({ heading, commands, application }) => (commands.length === 0 ? null : html`
  <section aria-label=${heading}><h2>${heading}</h2>
    <ul class="command-list">${commands.map((one) => html`<li key=${one.name}><a href=${link(`/commands/${one.name}`, [['application', application]])}><code>${one.name}</code></a> <span>${one.about}</span></li>`)}</ul></section>`);

export const Commands = ({ route }) => {
  const { commands, application, can } = useConsole();
  const mine = commands.filter((one) => can(one.right));
  if (!route.name) {
    return html`
      <${Heading} title="Commands" />
      <p class="lead">Each runs the command of the same name. Commands that change something first show what they would do.</p>
      ${Object.entries(RIGHTS).map(([right, heading]) => html`<${Group} key=${right} heading=${heading} commands=${mine.filter((one) => one.right === right)} application=${application} />`)}
      ${mine.length === 0 && html`<p class="quiet">You may not run any commands.</p>`}`;
  }
  const command = mine.find((one) => one.name === route.name);
  const up = html`<p><a href=${link('/commands', [['application', application]])}>All commands</a></p>`;
  if (!command) {
    return html`<${Heading} title=${route.name} />${up}
      <${Alert}>${commands.some((one) => one.name === route.name) ? 'You may not run this command.' : 'There is no such command here, or you may not run it.'}<//>`;
  }
  // The longer text begins with the shorter one.
  const more = (command.more ?? '').replace(command.about, '').replace(/^[.\s]+/, '');
  return html`
    <${Heading} title=${command.name} />${up}
    <p class="lead">${command.about}</p>
    ${more && html`<div class="more">${more.split(/\n{2,}/).map((text) => html`<p key=${text}>${text}</p>`)}</div>`}
    <${Form} key=${`${command.name} ${application} ${route.query}`} command=${command} route=${route} />`;
};
