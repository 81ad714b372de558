declare module 'shardmill:processor/emit@0.1.0' {
  /**
   * Emits one piece, in `process` or `close`. In `init` it fails, since there is no batch to cover it.
   *
   * - `destination`: the name of a sink from the host's configuration, such as `stdout`.
   * - `key`: for sinks that order or partition by key; may be empty; at most 2,048 bytes.
   * - `data`: the payload, opaque to the host.
   */
  export function put(destination: string, key: string, data: Uint8Array): void;
  /**
   * Why a piece was not taken. The instance stays usable.
   */
  export type EmitError = EmitErrorUnknownDestination | EmitErrorTooMuch | EmitErrorOther;
  /**
   * No sink of this name is configured for the plugin; carries the names of those that are, separated by commas.
   */
  export interface EmitErrorUnknownDestination {
    tag: 'unknown-destination',
    val: string,
  }
  /**
   * The call has emitted as much as the host keeps for one batch; carries the limit, for people to read. Commit
   * less of the batch, or return an error.
   */
  export interface EmitErrorTooMuch {
    tag: 'too-much',
    val: string,
  }
  /**
   * Anything else. Cases added later arrive as this one.
   */
  export interface EmitErrorOther {
    tag: 'other',
    val: string,
  }
}
