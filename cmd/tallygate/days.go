package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// days is the value of a flag that is a time and may begin with days: 7d, 1d12h, 90m.
type days time.Duration

// Set reads it.
func (d *days) Set(text string) error {
	wrong := fmt.Errorf("%q is no time such as 7d, 1d12h or 90m", text)
	var whole, part time.Duration
	rest := text
	if count, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(count, 10, 16) // 65,535 days are 179 years
		if err != nil {
			return wrong
		}
		whole, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest != "" || text == "" {
		var err error
		if part, err = time.ParseDuration(rest); err != nil || rest != text && part < 0 || part > math.MaxInt64-whole {
			return wrong
		}
	}
	*d = days(whole + part)
	return nil
}

// String is it as [time.ParseDuration] reads it; "0" is no default that help shows.
func (d *days) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Type is that of other times.
func (*days) Type() string { return "duration" }

// addDays adds a flag that is a time, which GetDuration reads.
func addDays(cmd *cobra.Command, name, help string) { cmd.Flags().Var(new(days), name, help) }
