package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/server"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show what this binary is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asData, err := wantsData(cmd)
			if err != nil {
				return err
			}
			v := version()
			if asData {
				return writeData(cmd, map[string]string{"version": v.Version, "revision": v.Revision, "go": v.Go})
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
	addOutput(cmd)
	return cmd
}

// versionLine is what the binary is, in a line.
func versionLine() string {
	v := version()
	return fmt.Sprintf("tallygate %s %s %s\n", v.Version, v.Revision, v.Go)
}

// version reads what the compiler wrote into the binary.
func version() server.Version {
	v := server.Version{Version: "unknown", Revision: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version, v.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
