// The address of a view: everything after the #.
import { useEffect, useState } from './html.js';

export const parse = (hash) => {
  const [path, query = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter((part) => part !== '').map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { page: parts[0] ?? '', name: parts.slice(1).join('/'), query: new URLSearchParams(query), path: `/${parts.join('/')}` };
};

const encode = (text) => encodeURIComponent(text).replace(/%20/g, '+');

// The link to a view. The arguments are pairs, so that one may repeat.
export const link = (path, args = []) => {
  const query = args.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
  const safe = path.split('/').map(encodeURIComponent).join('/');
  return `#${safe}${query ? `?${query}` : ''}`;
};

export const useRoute = () => {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const onChange = () => set(parse(location.hash));
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return route;
};
