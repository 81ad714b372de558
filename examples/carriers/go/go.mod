module carriers

go 1.25

require shardmill.example/wit v0.1.0

replace shardmill.example/wit => ../../../wit
