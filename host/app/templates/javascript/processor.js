// The logic, independent of the host: `node --test` runs it anywhere.

/** Turns one record's data into `{ output }`, or `{ reject: "why" }`. */
export function handle(data) {
  if (data.length === 0) return { reject: "the record is empty" };
  // Your logic goes here. `new TextDecoder().decode(data)` decodes text.
  return { output: data };
}
