// The component: what the host calls.

import { put } from "shardmill:processor/emit@0.1.0";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// The state, which lasts from call to call, and what ends with the instance.
let count = 0;
let failed = 0;

export const processor = {
  init: reporting((_context) => {}),

  process: reporting(async ({ records }) => {
    for (const record of records) {
      const output = await handle(decoder.decode(record.data));
      put("stdout", record.partitionKey, encoder.encode(output));
    }
    return { failures: [], commit: { tag: "all" } };
  }),

  close: reporting((_reason) => {}),
};

export const state = {
  save: reporting(() => encoder.encode(String(count))),
  load: reporting((saved) => {
    count = Number(decoder.decode(saved));
  }),
};

async function handle(text) {
  if (text === "fail") throw new Error(`on purpose, ${++failed} times`);
  if (text.startsWith("ask ")) {
    const response = await fetch(text.slice("ask ".length));
    return `${response.status} ${await response.text()}`;
  }
  return `${text} ${++count}`;
}

// Turns whatever is thrown, now or by a promise, into an error of the contract for the host. Anything else would trap and
// cost the instance.
function reporting(call) {
  return async (argument) => {
    try {
      return await call(argument);
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
