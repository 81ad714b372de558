// Templates. Text that comes from elsewhere is only ever text: what stands between tags, and labels for assistive
// technology, are written with escaped control characters. Values of fields stay as they are.
import { html as raw, render } from './vendor/preact-htm.js';
import { show } from './text.js';

export * from './vendor/preact-htm.js';
export { render };

const LABELS = /(?:^|\s)(?:title|alt|aria-[a-z]+|placeholder|label)="?[^"]*$/;
const kinds = new WeakMap();

// For each value of a template, whether it is shown as text.
const shownOf = (strings) => {
  let known = kinds.get(strings);
  if (!known) {
    let before = '';
    known = strings.slice(0, -1).map((part) => {
      before += part;
      const tag = before.lastIndexOf('<');
      const isInTag = tag > before.lastIndexOf('>');
      const isShown = !isInTag || LABELS.test(before.slice(tag).replace(/=\s*$/, '="'));
      before += isInTag ? 'x' : '';
      return isShown;
    });
    kinds.set(strings, known);
  }
  return known;
};

const safe = (value) => {
  if (typeof value === 'string') return show(value);
  if (Array.isArray(value)) return value.map(safe);
  return value;
};

export const html = (strings, ...values) => {
  const shown = shownOf(strings);
  return raw(strings, ...values.map((value, at) => (shown[at] ? safe(value) : value)));
};
