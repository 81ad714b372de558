/// <reference path="./contract/ticking-plugin.d.ts" />

/**
 * Turns whatever an exported function throws, now or by a promise, into an error of the contract for the host. Anything
 * else would trap and cost the instance.
 */
export function reporting<A extends unknown[], R>(call: (...values: A) => R | Promise<R>): (...values: A) => Promise<R>;

/** Refuses what names no sink of the host. Call it in `init`, before the first record needs the sink. */
export function refuseUnknown(destination: string): void;
