module {{name}}

go 1.25

require shardmill.example/wit v0.1.0

// A copy, so that the project is independent of any server. Delete this line and the folder to depend on the version.
replace shardmill.example/wit => ./wit
