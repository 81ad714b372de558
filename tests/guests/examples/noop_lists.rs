//! The processor `noop`, without the export `bulk`: its batches come as lists of records.

shardmill_processor::plugin!(shardmill_guests::noop::Noop, lists);
