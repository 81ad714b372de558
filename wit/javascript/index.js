// Write a shardmill record processor in JavaScript: what a component needs besides the contract's own modules, such as
// `shardmill:processor/emit@0.1.0`, which exist only in a component.

import { get } from "wasi:config/store@0.2.0-rc.1";

/**
 * Turns whatever an exported function throws, now or by a promise, into an error of the contract for the host. Anything
 * else would trap and cost the instance.
 */
export function reporting(call) {
  return async (...values) => {
    try {
      return await call(...values);
    } catch (error) {
      if (isOfContract(error)) throw error;
      throw { tag: "other", val: describe(error) };
    }
  };
}

/** Refuses what names no sink of the host. Call it in `init`, before the first record needs the sink. */
export function refuseUnknown(destination) {
  const known = get("shardmill.destinations");
  if (known === undefined || known.split(",").includes(destination)) return;
  const message = `\`destination\` is "${destination}", which names no sink of the host; there are: ${known}`;
  throw { tag: "misconfigured", val: message };
}

function isOfContract(error) {
  return ["misconfigured", "unavailable", "other"].includes(error?.tag) && typeof error.val === "string";
}

function describe(error) {
  // An import throws the error it returned: `{ payload: { tag, val } }`.
  if (error?.payload) return JSON.stringify(error.payload);
  return error instanceof Error ? `${error}\n${error.stack}` : String(error);
}
