// Asks for the token.
import { html, useRef, useState, useEffect } from './html.js';
import { token } from './api.js';

export const SignIn = ({ problem, onToken, onCancel }) => {
  const [text, set] = useState('');
  const field = useRef(null);
  useEffect(() => {
    document.title = 'Sign in · shardmill';
    field.current?.focus();
  }, [problem]);
  const submit = (event) => {
    event.preventDefault();
    const trimmed = text.trim();
    if (trimmed === '') return;
    token.set(trimmed);
    set('');
    onToken();
  };
  return html`
    <main class="sign-in" id="main">
      <h1>Sign in to the console</h1>
      <p>The host requires a token. It stays in this tab and is gone when you close it.</p>
      <form onSubmit=${submit}>
        <div class="field"><label for="token">Token</label>
          <input id="token" ref=${field} type="password" autocomplete="off" spellcheck=${false} value=${text} required
            aria-describedby=${problem ? 'token-problem' : null} aria-invalid=${problem ? 'true' : null}
            onInput=${(event) => set(event.target.value)} /></div>
        <div role="alert">${problem && html`<p class="alert bad" id="token-problem"><span class="sign" aria-hidden="true">!</span> ${problem}</p>`}</div>
        <button type="submit" class="button main">Sign in</button> ${onCancel && html`<button type="button" class="button" onClick=${onCancel}>Continue without a token</button>`}
      </form>
    </main>`;
};
