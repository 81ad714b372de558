/// <reference path="./shardmill-processor-types.d.ts" />
declare module 'shardmill:processor/processor@0.1.0' {
  /**
   * Called once, before any batch. Check the configuration here: a new version whose `init` fails never replaces
   * one that works.
   */
  export function init(context: Context): void;
  /**
   * Processes one batch. An error means that none of it was processed. Records may repeat after a crash or a
   * move of the lease: delivery is at least once, in order within the shard.
   */
  export function process(batch: Batch): Outcome;
  /**
   * Called once, last, if the instance can still be called; not after a trap or a crash. After an error for
   * `shard-ended`, the host closes the shard again later, with a new instance.
   */
  export function close(reason: CloseReason): void;
  export type Batch = import('shardmill:processor/types@0.1.0').Batch;
  export type CloseReason = import('shardmill:processor/types@0.1.0').CloseReason;
  export type Context = import('shardmill:processor/types@0.1.0').Context;
  export type Error = import('shardmill:processor/types@0.1.0').Error;
  export type Outcome = import('shardmill:processor/types@0.1.0').Outcome;
}
