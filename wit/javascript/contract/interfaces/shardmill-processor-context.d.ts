/// <reference path="./shardmill-processor-types.d.ts" />
declare module 'shardmill:processor/context@0.1.0' {
  /**
   * The context that `init` was called with.
   */
  export function get(): Context;
  /**
   * Where the records of this instance begin: the checkpoint as it is when the instance is made. Callable from `init`
   * on. Some of the records after it may have been settled before, and do not come again then.
   */
  export function start(): StartPosition;
  export type Context = import('shardmill:processor/types@0.1.0').Context;
  /**
   * A record's place in its shard.
   */
  export interface Place {
    /**
     * A decimal number of up to 186 bits.
     */
    sequenceNumber: string,
    /**
     * The place inside a KPL aggregate; 0 for a plain record.
     */
    subSequenceNumber: bigint,
  }
  /**
   * Where the records of an instance begin.
   */
  export type StartPosition = StartPositionOldest | StartPositionTime | StartPositionAt | StartPositionAfter | StartPositionOther;
  /**
   * At the oldest record that the shard has.
   */
  export interface StartPositionOldest {
    tag: 'oldest',
  }
  /**
   * At the first record that arrived at this time or later, in milliseconds since the Unix epoch: the application
   * began there, or an operator sent the shard there.
   */
  export interface StartPositionTime {
    tag: 'time',
    val: bigint,
  }
  /**
   * At the record with this sequence number, or the oldest one after it: an operator sent the shard there.
   */
  export interface StartPositionAt {
    tag: 'at',
    val: string,
  }
  /**
   * After this record. It and everything before it is settled.
   */
  export interface StartPositionAfter {
    tag: 'after',
    val: Place,
  }
  /**
   * A place that this version of the contract does not know, for people to read.
   */
  export interface StartPositionOther {
    tag: 'other',
    val: string,
  }
}
