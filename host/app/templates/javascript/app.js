// The component: what the host calls. `processor.js` does the work.

import { put } from "shardmill:processor/emit@0.1.0";
import { get } from "wasi:config/store@0.2.0-rc.1";

import { handle } from "./processor.js";

// An instance serves one shard: keep in the module what must last from call to call.
let destination;

export const processor = {
  init: reporting((_context) => {
    destination = get("destination") ?? "stdout";
    refuseUnknown(destination);
  }),

  process: reporting(({ records }) => {
    const failures = [];
    records.forEach((record, index) => {
      const { output, reject } = handle(record.data);
      if (reject) failures.push({ index, kind: "reject", message: reject });
      else put(destination, record.partitionKey, output);
    });
    return { failures, commit: { tag: "all" } };
  }),

  close: reporting((_reason) => {}),
};

// Refuses what names no sink of the host before the first record needs it.
function refuseUnknown(destination) {
  const known = get("shardmill.destinations");
  if (known === undefined || known.split(",").includes(destination)) return;
  const message = `\`destination\` is "${destination}", which names no sink of the host; there are: ${known}`;
  throw { tag: "misconfigured", val: message };
}

// Turns whatever is thrown, now or by a promise, into an error of the contract for the host. Anything else would trap and
// cost the instance.
function reporting(call) {
  return async (argument) => {
    try {
      return await call(argument);
    } catch (error) {
      if (error?.tag === "misconfigured") throw error;
      throw { tag: "other", val: describe(error) };
    }
  };
}

function describe(error) {
  // An import throws the error it returned: `{ payload: { tag, val } }`.
  if (error?.payload) return JSON.stringify(error.payload);
  return error instanceof Error ? `${error}\n${error.stack}` : String(error);
}
