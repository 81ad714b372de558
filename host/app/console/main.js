// The frame of the console: who is signed in, which application, which page.
import { html, render, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from './html.js';
import { getJson, listen, token, Problem } from './api.js';
import { link, useRoute } from './route.js';
import { Alert, Console, NoApplication } from './parts.js';
import { SignIn } from './signin.js';
import { Fleet } from './fleet.js';
import { Shard } from './shard.js';
import { Plugins } from './plugins.js';
import { Letters } from './letters.js';
import { History } from './history.js';
import { Leases } from './leases.js';
import { Commands } from './commands.js';
import { Host } from './host.js';

const PAGES = [
  ['', 'Fleet', Fleet],
  ['leases', 'Leases', Leases],
  ['plugins', 'Plugins', Plugins],
  ['letters', 'Failed batches', Letters],
  ['history', 'History', History],
  ['commands', 'Commands', Commands],
  ['host', 'This host', Host],
];
const RETRY_MS = 2000;
// Who has them all without a token need not sign in.
const RIGHTS_ALL = 4;

// The console stores nothing in the browser but the token of this tab.
const useSession = () => {
  const [state, set] = useState({ session: null, problem: null, isAsked: false });
  const ask = useCallback(async () => {
    try {
      const session = await getJson('/api/v1/session');
      set({ session, problem: null, isAsked: true });
    } catch (problem) {
      // What is shown stays while the host is away.
      set((now) => ({ session: problem.status === 401 ? null : now.session, problem: problem instanceof Problem ? problem : new Problem(0, String(problem)), isAsked: true }));
    }
  }, []);
  useLayoutEffect(() => { ask(); }, []);
  useEffect(() => listen((what) => {
    if (what === 'signed-out') set({ session: null, problem: new Problem(401, 'The host does not know this token.'), isAsked: true });
  }), []);
  // A host that has just started knows no application yet.
  const isWaiting = state.isAsked && (state.session ? state.session.applications.length === 0 : state.problem?.status !== 401);
  useEffect(() => {
    if (!isWaiting) return undefined;
    const timer = setInterval(() => !document.hidden && ask(), RETRY_MS);
    return () => clearInterval(timer);
  }, [isWaiting]);
  return { ...state, ask };
};

const Unknown = ({ route }) => html`<h1 tabindex="-1">No such page</h1><p class="lead">The console has no page <code>${route.path}</code>. <a href="#/">Go to the fleet.</a></p>`;

const Header = ({ session, application, route, onSignIn, onSignOut }) => {
  const choose = (event) => {
    const path = route.page === 'shards' ? '/' : route.path;
    location.hash = link(path, [['application', event.target.value]]);
  };
  const mayOpen = (page) => page !== 'letters' || session.commands.some((one) => one.name === 'debug');
  const links = PAGES.filter(([page]) => mayOpen(page)).map(([page, title]) => {
    const isHere = route.page === page || (page === '' && route.page === 'shards');
    return html`<li key=${page}><a href=${link(`/${page}`, [['application', application]])} aria-current=${isHere ? 'page' : null}>${title}</a></li>`;
  });
  return html`
    <header>
      <div class="bar">
        <p class="brand"><svg viewBox="0 0 16 16" width="20" height="20" aria-hidden="true"><rect width="16" height="16" rx="3" class="logo" /><path d="M3 4h4v3H3zM9 4h4v3H9zM3 9h4v3H3z" class="logo-on" /><path d="M9 9h4v3H9z" class="logo-spot" /></svg> shardmill</p>
        <div class="field inline"><label for="application">Application</label>
          <select id="application" value=${application} onChange=${choose}>
            ${application && !session.applications.some((one) => one.application === application) && html`<option value=${application} selected>${application} (not of this host)</option>`}
            ${session.applications.map((one) => html`<option key=${one.application} value=${one.application} selected=${one.application === application}>${one.application}</option>`)}
          </select></div>
        <p class="who quiet">host <b>${session.worker}</b> · ${session.version}${session.by ? html` · you are <b>${session.by}</b>` : ''}
          ${token.get() ? html` <button type="button" class="small" onClick=${onSignOut}>Sign out</button>`
      : !session.by && session.rights.length < RIGHTS_ALL && html` <button type="button" class="small" onClick=${onSignIn}>Sign in</button>`}</p>
      </div>
      <nav aria-label="Pages"><ul>${links}</ul></nav>
    </header>`;
};

// A page that fails must not take the others with it.
const Guard = ({ children, route }) => {
  const [error, reset] = useErrorBoundary();
  useEffect(() => reset?.(), [route]);
  if (!error) return children;
  return html`<h1 tabindex="-1">This page failed</h1><${Alert}>The console could not show the host's answer: ${String(error.message ?? error)}<//>
    <p><button type="button" onClick=${reset}>Try again</button></p>`;
};

const App = () => {
  const { session, problem, isAsked, ask } = useSession();
  const route = useRoute();
  const place = `${route.path} ${route.query.get('record') ?? ''}`;
  const here = useRef(place);
  here.current = place;
  // The page whose heading had the focus: another application leaves the focus where it is.
  const focused = useRef(place);
  const focusOn = useCallback((heading) => {
    if (focused.current === here.current) return;
    focused.current = here.current;
    heading?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, []);
  // A user who may look without a token may want to do more.
  const [isSigningIn, setSigningIn] = useState(false);
  const signIn = () => {
    focused.current = null;
    setSigningIn(false);
    ask();
  };
  const signOut = () => {
    focused.current = null;
    token.clear();
    setSigningIn(false);
    ask();
  };
  const wanted = route.query.get('application');
  const known = session?.applications ?? [];
  const application = wanted || known[0]?.application || '';
  const value = useMemo(() => session && {
    session,
    application,
    plugin: known.find((one) => one.application === application)?.plugin ?? application,
    commands: session.commands ?? [],
    can: (right) => (session.rights ?? []).includes(right),
    has: (feature) => (session.features ?? []).includes(feature),
    route,
    focusOn,
  }, [session, application, route]);

  if (!isAsked) return html`<p class="lead" role="status">Asking the host…</p>`;
  if ((!session && problem?.status === 401) || isSigningIn) {
    return html`<${SignIn} problem=${!session && token.get() ? problem?.message : null} onToken=${signIn} onCancel=${isSigningIn || token.get() ? signOut : null} />`;
  }
  if (!session) {
    return html`<main class="sign-in" id="main"><h1>shardmill console</h1><div role="alert"><${Alert}>${problem.message} The console keeps trying.<//></div>
      <p><button type="button" onClick=${ask}>Try now</button> ${token.get() && html`<button type="button" onClick=${signOut}>Sign out</button>`}</p></main>`;
  }
  const Page = route.page === 'shards' && route.name ? Shard : PAGES.find(([page]) => page === route.page)?.[2] ?? Unknown;
  const body = !application && !['commands', 'host'].includes(route.page) ? html`<${NoApplication} />` : html`<${Page} route=${route} />`;
  return html`
    <${Console.Provider} value=${value}>
      <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('#main h1')?.focus(); }}>Skip to the content</a>
      <${Header} session=${session} application=${application} route=${route} onSignIn=${() => setSigningIn(true)} onSignOut=${signOut} />
      <main id="main"><${Guard} route=${route} key=${`${route.path} ${application}`}>${body}<//></main>
    <//>`;
};

const root = document.querySelector('#app');
root.replaceChildren();
render(html`<${App} />`, root);
