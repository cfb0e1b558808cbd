module github.com/rowandb/rowan

go 1.26.8
