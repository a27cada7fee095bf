package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate/internal/admin/api"
)

func checkCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check (--rule ID --key KEY | --attr NAME=VALUE…)",
		Short: "Ask a running server whether a request may pass",
		Long: "Ask a running server whether a request may pass. This spends tokens; with --cost 0 it only looks.\n" +
			"The exit code is 0 if allowed, 3 if denied, 1 if there is no verdict.",
		Example: "  tallygate check --domain public-api --rule growth-global --key acct_7Q2\n" +
			"  tallygate check --domain public-api --attr plan=growth --attr api_key=acct_7Q2 --cost 5 -o json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return check(cmd, env) },
	}
	addFlags(cmd, checking)
	addOutput(cmd)
	flags := cmd.Flags()
	flags.String("domain", "", "domain of the rules (default the server's default one)")
	flags.String("rule", "", "rule to ask")
	completeRuleFlag(cmd, rulesOfSettings(env))
	flags.StringArray("key", nil, "key to count; again for each part of a rule that counts by several")
	flags.StringArray("attr", nil, "attribute as NAME=VALUE; the server finds the rules")
	flags.Int64("cost", 1, "tokens to spend; 0 looks")
	flags.Duration("timeout", 5*time.Second, "how long to wait for the server")
	return cmd
}

// question is the body of a check, answer what check shows of the reply.
type question struct {
	Domain     string            `json:"domain,omitempty"`
	Entries    []questionEntry   `json:"entries,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       *int64            `json:"cost,omitempty"`
}

type questionEntry struct {
	Rule string `json:"rule"`
	Key  key    `json:"key,omitempty"`
	Cost int64  `json:"cost"`
}

// key is the parts of a key; one part alone is written as a plain string.
type key []string

// MarshalJSON writes a string or a list of them.
func (k key) MarshalJSON() ([]byte, error) {
	if len(k) == 1 {
		return json.Marshal(k[0])
	}
	return json.Marshal([]string(k))
}

type answer struct {
	Verdict  string        `json:"verdict"`
	DeniedBy string        `json:"denied_by"`
	Reason   string        `json:"reason"`
	Degraded string        `json:"degraded"`
	RetryMS  *int64        `json:"retry_ms"`
	Entries  []answerEntry `json:"entries"`
	// A problem has these instead.
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type answerEntry struct {
	Rule      string `json:"rule"`
	Verdict   string `json:"verdict"`
	Mode      string `json:"mode"`
	Limit     *int64 `json:"limit"`
	Remaining *int64 `json:"remaining"`
	RetryMS   *int64 `json:"retry_ms"`
	ResetMS   *int64 `json:"reset_ms"`
	Reason    string `json:"reason"`
	Source    string `json:"source"`
}

func check(cmd *cobra.Command, env []string) error {
	v, err := load(cmd, env)
	if err != nil {
		return err
	}
	asData, err := wantsData(cmd)
	if err != nil {
		return err
	}
	q, err := readQuestion(cmd)
	if err != nil {
		return err
	}
	reply, err := askServer(cmd, v.String("server"), v.String("token"), q)
	if err != nil {
		return err
	}
	var a answer
	err = json.Unmarshal(reply, &a)
	if err == nil && a.Code == "" && a.Verdict != "allow" && a.Verdict != "deny" {
		err = fmt.Errorf("verdict %q", a.Verdict) // someone else's JSON is no denial
	}
	if err != nil {
		return fmt.Errorf("the server at %s does not answer as tallygate does: %w", v.String("server"), err)
	}
	switch {
	case asData:
		err = writeReply(cmd, reply)
	case a.Code == "":
		err = a.print(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case a.Code != "":
		return a.problem()
	case a.Verdict != "allow":
		return errDenied
	default:
		return nil
	}
}

// problem is why there is no verdict, and what to do about it.
func (a *answer) problem() error {
	text := advice(api.Code(a.Code))
	if a.Code == string(api.NotFound) { // of an admin port, which has problems as well
		text = "--server names the port of checks (--http of serve)"
	}
	if text != "" {
		return fmt.Errorf("%s: %s; %s", a.Code, a.Detail, text)
	}
	return fmt.Errorf("%s: %s", a.Code, a.Detail)
}

// readQuestion makes the body of the flags.
func readQuestion(cmd *cobra.Command) (question, error) {
	flags := cmd.Flags()
	domain, _ := flags.GetString("domain")
	rule, _ := flags.GetString("rule")
	keys, _ := flags.GetStringArray("key")
	attrs, _ := flags.GetStringArray("attr")
	cost, _ := flags.GetInt64("cost")
	q := question{Domain: domain}
	switch {
	case rule != "" && len(attrs) > 0:
		return q, usagef("--rule and --attr exclude each other: name the rule, or let the server find it")
	case rule != "":
		q.Entries = []questionEntry{{Rule: rule, Key: keys, Cost: cost}}
		return q, nil
	case len(attrs) == 0:
		return q, usagef("%s needs --rule and --key, or --attr", cmd.CommandPath())
	case len(keys) > 0:
		return q, usagef("--key goes with --rule; with --attr the rule finds its key")
	}
	q.Cost, q.Attributes = &cost, make(map[string]string)
	for _, pair := range attrs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return q, usagef("--attr %q is not NAME=VALUE", pair)
		}
		if _, twice := q.Attributes[name]; twice {
			return q, usagef("--attr %s is given twice", name)
		}
		q.Attributes[name] = value
	}
	return q, nil
}

// askServer sends a question and returns the reply, verdict or problem.
func askServer(cmd *cobra.Command, base, token string, q question) ([]byte, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	url := strings.TrimRight(base, "/") + "/v1/ratelimit:check"
	request, err := http.NewRequestWithContext(cmd.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	timeout, _ := cmd.Flags().GetDuration("timeout")
	client := &http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil && strings.Contains(err.Error(), "malformed HTTP response") { // and bytes that a terminal cannot show
		return nil, fmt.Errorf("what listens at %s does not speak HTTP/1.1, as tallygate's gRPC port does not; --server names the port of checks (--http of serve)", maskURL(base))
	}
	if err != nil {
		return nil, away(err, "server", "--server", base)
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(io.LimitReader(response.Body, 16<<20))
}

// print writes a verdict as a table.
func (a *answer) print(out io.Writer) error {
	line := []string{a.Verdict}
	for _, part := range []struct{ name, value string }{
		{"by", a.DeniedBy}, {"retry in", milliseconds(a.RetryMS)}, {"reason", a.Reason}, {"degraded", a.Degraded},
	} {
		if part.value != "" {
			line = append(line, part.name+" "+part.value)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.Join(line, ", "))
	if len(a.Entries) > 0 {
		_, _ = fmt.Fprintln(w, "RULE\tVERDICT\tLIMIT\tREMAINING\tRETRY\tRESET\tREASON\tSOURCE\tMODE")
	}
	for _, e := range a.Entries {
		cells := []string{
			e.Rule, e.Verdict, number(e.Limit), number(e.Remaining),
			milliseconds(e.RetryMS), milliseconds(e.ResetMS), e.Reason, e.Source, e.Mode,
		}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func milliseconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}
