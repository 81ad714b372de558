//! shardmill local.
