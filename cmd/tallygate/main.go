// Command tallygate is the rate limiter as one binary, one file per subcommand:
// serve (serve.go), check (check.go), rules lint (rules.go), config print
// (config.go) and version (version.go). Settings come in layers (settings.go,
// layers.go). This package only wires: what it wires lives in the packages it
// imports.
//
// Exit codes: 0 done, for check also allowed; 1 an error; 2 wrong usage; 3 check
// was denied.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // calendar windows need time zones, and small images have none
)

func main() {
	// Room for a reload and two stops: a signal must not be lost while another is
	// being handled.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	m := &Main{Signals: signals}
	os.Exit(m.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
