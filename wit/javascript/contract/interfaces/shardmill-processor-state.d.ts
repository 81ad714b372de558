/// <reference path="./shardmill-processor-types.d.ts" />
declare module 'shardmill:processor/state@0.1.0' {
  /**
   * The state after everything processed so far. Called between two calls of `process`, before each checkpoint, so
   * it should be quick and the state small: a few KiB, at most the limit `state` (256 KiB by default). After an
   * error, or if the state is too large, the shard waits, visibly, and the host calls it again.
   */
  export function save(): Uint8Array;
  /**
   * Called once after `init`, before any batch, if there is a saved state; it may come from another version. A new
   * version that returns an error never replaces the one whose state it refuses.
   */
  export function load(state: Uint8Array): void;
  export type Error = import('shardmill:processor/types@0.1.0').Error;
}
