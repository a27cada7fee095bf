// Package arch holds no code: its test reads the source of the whole module and
// fails on an import that points up, on an unlisted package or dependency, and
// on a file, a package or an import chain that has grown too large. The table of
// who may import whom stands in rooms_test.go and nowhere else; ARCHITECTURE.md
// draws it.
package arch
