package redisstore

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:embed script/1-clock.lua
var clockLua string

//go:embed script/2-lease.lua
var leaseLua string

//go:embed script/3-window.lua
var windowLua string

//go:embed script/4-log.lua
var logLua string

//go:embed script/4-reserve.lua
var reserveLua string

//go:embed script/5-op.lua
var opLua string

//go:embed script/6-take.lua
var takeLua string

//go:embed script/members.lua
var membersLua string

// script is a Lua text and the name Redis knows it by.
type script struct{ text, sha string }

// compact leaves out what only people read: a server that has not seen the script
// compiles it within the deadline of a check, and half of the time it reads comments
// and indentation. Lines keep their order, and no string spans lines.
func compact(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts by SHA-1
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// tally is the one script, in the order in which its parts build on each other.
func tally() script {
	return newScript(compact(clockLua + leaseLua + windowLua + logLua + reserveLua + opLua + takeLua))
}

// members is the script by which pods are counted.
func members() script { return newScript(compact(membersLua)) }
