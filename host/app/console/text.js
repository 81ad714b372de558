// How values become text. Nothing here makes HTML.

// Control characters, and those that are invisible or change the direction of what follows. Tabs and line feeds stay.
// eslint-disable-next-line no-control-regex
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

const escaped = (found) => [...Array(found.length).keys()]
  .map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');

// The text with every such character written as \u202e.
export const show = (text) => String(text).replace(UNSAFE, escaped);

// The number in a shard's id, which commands take too.
export const shortShard = (id) => {
  const found = /^shardId-0*(\d+)$/.exec(id);
  return found ? found[1] : id;
};

export const shortDigest = (digest) => String(digest).slice(0, 12);

// A span of time in at most two units.
export const span = (ms) => {
  if (ms === null || ms === undefined || !Number.isFinite(Number(ms))) return '–';
  const all = Math.max(0, Number(ms));
  if (all < 1000) return `${Math.round(all)} ms`;
  const seconds = Math.floor(all / 1000);
  const parts = [[Math.floor(seconds / 86400), 'd'], [Math.floor(seconds / 3600) % 24, 'h'], [Math.floor(seconds / 60) % 60, 'min'], [seconds % 60, 's']];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n], at) => at === 0 || n > 0).map(([n, unit]) => `${n} ${unit}`).join(' ');
};

// A time of day, or with the date if it is long ago, in UTC as in the commands.
export const clock = (ms) => {
  const at = new Date(Number(ms));
  if (!Number.isFinite(at.getTime())) return '–';
  const iso = at.toISOString();
  return Math.abs(Date.now() - at.getTime()) < 43_200_000 ? `${iso.slice(11, 19)} UTC` : `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;
};

export const rate = (bytes) => {
  if (bytes === null || bytes === undefined) return '–';
  if (bytes < 1024) return `${bytes} B/s`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(1)} KiB/s`;
  return `${(bytes / 1024 ** 2).toFixed(1)} MiB/s`;
};

export const plural = (n, one, more = `${one}s`) => `${n.toLocaleString('en')} ${n === 1 ? one : more}`;

// Whether a filter's words are all in the text.
export const matches = (filter, text) => {
  const low = text.toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => low.includes(word));
};
