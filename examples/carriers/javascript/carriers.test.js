import assert from "node:assert/strict";
import { test } from "node:test";

import { summarize } from "./carriers.js";

const lines = (...texts) => texts.map((text) => new TextEncoder().encode(text));

const FLIGHTS = lines(
  '{"carrier":"UA","dep_delay":2}',
  '{"carrier":"UA","dep_delay":null}',
  '{"carrier":"AA","dep_delay":-5}',
);

test("each carrier is one line", () => {
  const { sums, rejects } = summarize(FLIGHTS);
  assert.deepEqual(rejects, []);
  assert.deepEqual(sums, [
    { carrier: "AA", flights: 1, with_delay: 1, delay_minutes: -5 },
    { carrier: "UA", flights: 2, with_delay: 1, delay_minutes: 2 },
  ]);
});

test("what is not a flight is rejected, and the rest counts", () => {
  const bad = lines("", "[]", "null", "{", "{}", '{"carrier":7}', '{"carrier":"UA","dep_delay":"late"}');
  bad.push(Uint8Array.of(0xff));
  const { sums, rejects } = summarize([...bad, ...FLIGHTS]);
  assert.deepEqual(rejects.map(({ index }) => index), [...bad.keys()]);
  assert.equal(sums.length, 2);
});
