/// <reference path="./shardmill-processor-types.d.ts" />
declare module 'shardmill:processor/ticker@0.1.0' {
  /**
   * Time has passed. Has the limits of a call of `process`, and may emit as that does. What it emits is stored first,
   * then the state is saved, if the processor keeps one, even if no record came since. After a crash in between it
   * happens again.
   *
   * - `now-ms`: the host's wall clock, in milliseconds since the Unix epoch. It never goes back while the host holds
   *   the shard's lease, also if the clock is set back. The next holder's clock may be another.
   * - `delivered-until-ms`: by the same clock, when the host last read that the shard has nothing more, if everything
   *   before that was delivered and nothing of it waits to be tried again; none if there is more. So a window of
   *   records that arrived before this can be closed. Records are stamped by the clock of Kinesis, and a reply takes
   *   time: allow for some seconds.
   *
   * An error, like a trap, drops what was emitted. The host shows it, calls again after an interval that doubles up
   * to 64 times, and delivers records all the while.
   */
  export function tick(nowMs: bigint, deliveredUntilMs: bigint | undefined): HeldBack;
  export type Error = import('shardmill:processor/types@0.1.0').Error;
  /**
   * What becomes of the records that the processor holds back (`commit` in `outcome`), once what the tick emitted is
   * stored.
   * # Variants
   *
   * ## `"keep"`
   *
   * They stay held back; the answer if there are none.
   * ## `"commit"`
   *
   * All of them may be committed.
   */
  export type HeldBack = 'keep' | 'commit';
}
