// The component: what the host calls.

import { put } from "shardmill:processor/emit@0.1.0";
// componentize-js looks no name up in node_modules.
import { reporting } from "./node_modules/shardmill-processor/javascript/index.js";

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
