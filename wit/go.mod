// The contract with shardmill, and its package for Go: `shardmill.example/wit/go`.
//
// The domain is a placeholder that nobody can register, until the repository has an address. release/README.md says how
// to set it.
module shardmill.example/wit

go 1.25
