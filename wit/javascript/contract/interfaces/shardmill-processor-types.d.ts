declare module 'shardmill:processor/types@0.1.0' {
  /**
   * Who this instance is. One instance serves one shard, under one holding of that shard's lease.
   */
  export interface Context {
    /**
     * The plugin's name: the component's file name without `.wasm`.
     */
    plugin: string,
    /**
     * The application: the name that leases and checkpoints are kept under.
     */
    application: string,
    /**
     * The Kinesis stream.
     */
    stream: string,
    /**
     * The shard, such as `shardId-000000000003`.
     */
    shard: string,
    /**
     * The host that runs this instance.
     */
    worker: string,
    /**
     * Rises each time the shard's lease changes hands. Write it beside your own side effects, and refuse writes
     * with a smaller one, to fence off a host that lost the lease without noticing.
     */
    grantEpoch: bigint,
  }
  /**
   * One user record. Records inside a KPL aggregate arrive one by one.
   */
  export interface Record {
    /**
     * The producer's payload: opaque, possibly empty, at most 10 MiB.
     */
    data: Uint8Array,
    /**
     * The key by which the producer chose the shard.
     */
    partitionKey: string,
    /**
     * The producer's explicit hash key, if known (only inside KPL aggregates).
     */
    explicitHashKey?: string,
    /**
     * The record's place in its shard: a decimal number of up to 186 bits. Compare it as a number, not as text.
     */
    sequenceNumber: string,
    /**
     * The place inside a KPL aggregate; 0 for a plain record. Sequence number and sub-sequence number together
     * identify a record, even when it is delivered again.
     */
    subSequenceNumber: bigint,
    /**
     * When Kinesis received it, in milliseconds since the Unix epoch; 0 if unknown.
     */
    arrivalMs: bigint,
  }
  /**
   * Records delivered in one call, in shard order, never empty.
   */
  export interface Batch {
    /**
     * The records.
     */
    records: Array<Record>,
    /**
     * 1 on the first delivery, one more on each delivery after a failure.
     */
    attempt: number,
    /**
     * How far the shard's tip was ahead when the last of these records was fetched; 0 means caught up.
     */
    millisBehindLatest: bigint,
  }
  /**
   * Whether a failed record is worth another try.
   * # Variants
   *
   * ## `"retry"`
   *
   * Transient: deliver it again.
   * ## `"reject"`
   *
   * It will never work: treat it as the plugin's failure policy says, without another try.
   */
  export type FailureKind = 'retry' | 'reject';
  /**
   * One record that failed.
   */
  export interface Failure {
    /**
     * Its index in the batch, from 0.
     */
    index: number,
    /**
     * Whether to try it again.
     */
    kind: FailureKind,
    /**
     * Why it failed, for people to read. The host keeps the first 1,024 bytes.
     */
    message: string,
  }
  /**
   * How far a batch may be committed, that is, checkpointed as soon as its failures are settled.
   */
  export type Commit = CommitAll | CommitNothing | CommitThrough;
  /**
   * All of it: the normal case.
   */
  export interface CommitAll {
    tag: 'all',
  }
  /**
   * None of it yet. The records have not failed; the processor holds them back, for example in an open window.
   * They are delivered again to the next instance if this one ends before it commits them with a later batch.
   */
  export interface CommitNothing {
    tag: 'nothing',
  }
  /**
   * Up to and including this index. The rest is held back, as under `nothing`.
   */
  export interface CommitThrough {
    tag: 'through',
    val: number,
  }
  /**
   * The result of processing a batch.
   */
  export interface Outcome {
    /**
     * The records that failed, by strictly rising index; empty if none did. An index that does not rise, or is
     * beyond the batch, makes the whole outcome invalid: the batch counts as failed and is delivered again.
     */
    failures: Array<Failure>,
    /**
     * How far the batch may be committed.
     */
    commit: Commit,
    /**
     * How long to wait before the failed records are delivered again; none leaves it to the host.
     */
    retryAfterMs?: bigint,
  }
  /**
   * Why `init`, `process`, `close`, `save` or `load` failed. From `process` it means that no record of the batch
   * counts as processed: the host drops what was emitted and delivers the batch again.
   */
  export type Error = ErrorMisconfigured | ErrorUnavailable | ErrorOther;
  /**
   * The configuration is missing or wrong; trying again will not help until someone fixes it.
   */
  export interface ErrorMisconfigured {
    tag: 'misconfigured',
    val: string,
  }
  /**
   * Something the processor needs is unavailable at the moment; trying again may help.
   */
  export interface ErrorUnavailable {
    tag: 'unavailable',
    val: string,
  }
  /**
   * Anything else. Cases added later arrive as this one.
   */
  export interface ErrorOther {
    tag: 'other',
    val: string,
  }
  /**
   * Why an instance is closed.
   */
  export type CloseReason = CloseReasonLeaseLost | CloseReasonShardEnded | CloseReasonShutdown | CloseReasonReload | CloseReasonOther;
  /**
   * Another host has the shard now. Nothing emitted here is kept.
   */
  export interface CloseReasonLeaseLost {
    tag: 'lease-lost',
  }
  /**
   * The shard has ended and all its records were delivered. Emit what is still held back: once this call
   * returns ok, everything emitted is stored and the shard is marked finished; no other instance will follow.
   */
  export interface CloseReasonShardEnded {
    tag: 'shard-ended',
  }
  /**
   * The host is shutting down. What was emitted is stored; records that were not committed are delivered again
   * to the next instance, wherever it runs.
   */
  export interface CloseReasonShutdown {
    tag: 'shutdown',
  }
  /**
   * Another version of the plugin takes over, the plugin was removed, or the host needs the memory for others. As
   * for `shutdown`.
   */
  export interface CloseReasonReload {
    tag: 'reload',
  }
  /**
   * A reason that this version of the contract does not know. Treat it as `lease-lost`.
   */
  export interface CloseReasonOther {
    tag: 'other',
    val: string,
  }
}
