//! The processor `echo`, as every plugin in Rust exports one.

shardmill_processor::plugin!(shardmill_guests::echo::Echo);
