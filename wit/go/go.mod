module shardmill

go 1.25
