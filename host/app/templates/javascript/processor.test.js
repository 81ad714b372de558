import assert from "node:assert/strict";
import { test } from "node:test";

import { handle } from "./processor.js";

test("a record comes out as it came", () => {
  const data = new TextEncoder().encode("hello");
  assert.deepEqual(handle(data), { output: data });
});

test("an empty record is rejected", () => {
  assert.ok(handle(new Uint8Array()).reject);
});
