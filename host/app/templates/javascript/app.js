// The component: what the host calls. `processor.js` does the work.

import { put } from "shardmill:processor/emit@0.1.0";
import { get } from "wasi:config/store@0.2.0-rc.1";

// componentize-js looks no name up in node_modules.
import { refuseUnknown, reporting } from "./node_modules/shardmill-processor/javascript/index.js";
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
