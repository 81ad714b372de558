// The component: what the host calls. `carriers.js` does the work.
//
// Configuration: `destination` (default `stdout`).

import { put } from "shardmill:processor/emit@0.1.0";
import { get } from "wasi:config/store@0.2.0-rc.1";

import { summarize } from "./carriers.js";

const encoder = new TextEncoder();

// An instance serves one shard: keep in the module what must last from call to call.
let destination;

export const processor = {
  init: reporting((_context) => {
    destination = get("destination") ?? "stdout";
  }),

  process: reporting(({ records }) => {
    const { sums, rejects } = summarize(records.map((record) => record.data));
    for (const sum of sums) put(destination, sum.carrier, encoder.encode(JSON.stringify(sum)));
    const failures = rejects.map(({ index, reason }) => ({ index, kind: "reject", message: reason }));
    return { failures, commit: { tag: "all" } };
  }),

  close: reporting((_reason) => {}),
};

// Turns whatever is thrown into an error of the contract for the host. Anything else would trap and cost the instance.
function reporting(call) {
  return (argument) => {
    try {
      return call(argument);
    } catch (error) {
      throw { tag: "other", val: describe(error) };
    }
  };
}

function describe(error) {
  // An import throws the error it returned: `{ payload: { tag, val } }`.
  if (error?.payload) return JSON.stringify(error.payload);
  return error instanceof Error ? `${error}\n${error.stack}` : String(error);
}
