package main

import "encoding/json"

// WriteRulesFile is how rules export writes a file, and what reading it back says.
func WriteRulesFile(rules, overrides []json.RawMessage, output string) ([]byte, error) {
	file := exported{Rules: rules, Overrides: overrides}
	text, err := file.text(output)
	if err == nil {
		_, err = readsBack(text, file)
	}
	return text, err
}
