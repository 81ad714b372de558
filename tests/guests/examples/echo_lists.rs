//! The processor `echo`, without the export `bulk`: its batches come as lists of records.

shardmill_processor::plugin!(shardmill_guests::echo::Echo, lists);
