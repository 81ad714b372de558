//! shardmill worker.
