//! The processor `noop`, as every plugin in Rust exports one.

shardmill_processor::plugin!(shardmill_guests::noop::Noop);
