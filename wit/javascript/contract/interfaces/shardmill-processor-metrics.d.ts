declare module 'shardmill:processor/metrics@0.1.0' {
  /**
   * Adds to a counter.
   */
  export function counter(name: string, add: bigint): void;
  /**
   * Sets a gauge.
   */
  export function gauge(name: string, value: number): void;
  /**
   * Records one value in a histogram.
   */
  export function histogram(name: string, value: number): void;
}
