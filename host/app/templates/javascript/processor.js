// The logic, free of the host: `node --test` runs it anywhere.

/** Makes the output of one record's data: `{ output }`, or `{ reject: "why" }`. */
export function handle(data) {
  if (data.length === 0) return { reject: "the record is empty" };
  // Your logic goes here. `new TextDecoder().decode(data)` makes text of it.
  return { output: data };
}
