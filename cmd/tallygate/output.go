package main

import (
	"bytes"
	"encoding/json"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// The forms of -o.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", outputTable, "table, json or yaml")
	completeWords(cmd, "output", outputTable, outputJSON, outputYAML)
}

// completeWords has the shell complete a flag, which is there, by these words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// wantsData reports whether -o asks for data in place of a table.
func wantsData(cmd *cobra.Command) (bool, error) {
	output, _ := cmd.Flags().GetString("output")
	if err := oneOf(outputTable, outputJSON, outputYAML)(output); err != nil {
		return false, usagef("--output: %w", err)
	}
	return output != outputTable, nil
}

// writeData writes a value as -o asks for.
func writeData(cmd *cobra.Command, value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return writeReply(cmd, text.Bytes())
}

// writeReply writes JSON as it came, or the same as YAML.
func writeReply(cmd *cobra.Command, text []byte) error {
	text = append(bytes.TrimSpace(text), '\n')
	if output, _ := cmd.Flags().GetString("output"); output == outputYAML {
		converted, err := yaml.JSONToYAML(text)
		if err != nil {
			return err
		}
		text = converted
	}
	_, err := cmd.OutOrStdout().Write(text)
	return err
}
