// Command quickstart is the example of the README.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

func main() {
	dir, err := os.MkdirTemp("", "rowan-")
	check(err)
	defer os.RemoveAll(dir)
	db, err := engine.Open(dir, engine.Options{})
	check(err)
	defer db.Close()
	ctx := context.Background()
	users, err := db.CreateTable(ctx, "users", engine.TableSpec{Families: map[string]engine.FamilySpec{
		"info": {GC: gc.MaxVersionsPolicy(2)},
	}})
	check(err)
	for _, city := range []string{"Oslo", "Bergen", "Turku"} {
		m := engine.NewMutation()
		m.Set("info", "city", engine.ServerTime, []byte(city))
		check(users.Apply(ctx, "user#42", m)) // durable when it returns
	}
	for row, err := range users.Rows(ctx, engine.PrefixRange("user#")) {
		check(err)
		for _, c := range row.Cells { // two versions, the newest first
			fmt.Printf("%s %s:%s = %s\n", row.Key, c.Family, c.Qualifier, c.Value)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
