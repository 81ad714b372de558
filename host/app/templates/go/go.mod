module {{name}}

go 1.25

require shardmill v0.0.0

replace shardmill => ./shardmill
