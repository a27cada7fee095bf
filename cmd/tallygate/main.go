// Command tallygate is the rate limiter as one binary, one file per subcommand:
// serve (serve.go), check (check.go), rules lint (rules.go), config print
// (config.go), store check and store slot (servers.go) and version (version.go). Settings come in layers (settings.go,
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
	stops, reloads := Notify()
	m := &Main{Signals: stops, Reloads: reloads}
	os.Exit(m.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// Notify has the process's signals sent to two channels, from now on. They are
// apart so that a storm of reloads, each of which may take seconds, leaves no
// stop without room: what finds none is lost.
func Notify() (stops, reloads <-chan os.Signal) {
	stop := make(chan os.Signal, 2)   // the second one stops at once
	reload := make(chan os.Signal, 1) // one more reload sees all changes before it
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(reload, syscall.SIGHUP)
	return stop, reload
}
