// The API as a program uses it.
export const call = (base, path, { token, method = 'GET', body, headers = {} } = {}) => fetch(`${base}${path}`, {
  method,
  headers: { ...(token ? { authorization: `Bearer ${token}` } : {}), ...(body ? { 'content-type': 'application/json' } : {}), ...headers },
  body: body ? JSON.stringify(body) : undefined,
});
