//! shardmill aws.
