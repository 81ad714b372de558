/// <reference path="./interfaces/shardmill-processor-context.d.ts" />
/// <reference path="./interfaces/shardmill-processor-emit.d.ts" />
/// <reference path="./interfaces/shardmill-processor-metrics.d.ts" />
/// <reference path="./interfaces/shardmill-processor-processor.d.ts" />
/// <reference path="./interfaces/shardmill-processor-state.d.ts" />
/// <reference path="./interfaces/shardmill-processor-ticker.d.ts" />
/// <reference path="./interfaces/shardmill-processor-types.d.ts" />
/// <reference path="./interfaces/wasi-config-store.d.ts" />
/// <reference path="./interfaces/wasi-logging-logging.d.ts" />
declare module 'shardmill:processor/ticking-plugin@0.1.0' {
  export type * as ShardmillProcessorContext010 from 'shardmill:processor/context@0.1.0'; // import shardmill:processor/context@0.1.0
  export type * as ShardmillProcessorEmit010 from 'shardmill:processor/emit@0.1.0'; // import shardmill:processor/emit@0.1.0
  export type * as ShardmillProcessorMetrics010 from 'shardmill:processor/metrics@0.1.0'; // import shardmill:processor/metrics@0.1.0
  export type * as ShardmillProcessorTypes010 from 'shardmill:processor/types@0.1.0'; // import shardmill:processor/types@0.1.0
  export type * as WasiConfigStore020Rc1 from 'wasi:config/store@0.2.0-rc.1'; // import wasi:config/store@0.2.0-rc.1
  export type * as WasiLoggingLogging010Draft from 'wasi:logging/logging@0.1.0-draft'; // import wasi:logging/logging@0.1.0-draft
  export * as ticker from 'shardmill:processor/ticker@0.1.0'; // export shardmill:processor/ticker@0.1.0
  export * as state from 'shardmill:processor/state@0.1.0'; // export shardmill:processor/state@0.1.0
  export * as processor from 'shardmill:processor/processor@0.1.0'; // export shardmill:processor/processor@0.1.0
}
