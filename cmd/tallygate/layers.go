package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
)

const (
	envPrefix   = "TALLYGATE_"
	defaultFile = "tallygate.yaml"
)

// values are the settings in force and where each came from.
type values struct {
	*koanf.Koanf
	origin map[string]string
}

// layer is one source of settings: name → value as text. It is a koanf.Provider.
type layer map[string]any

// ReadBytes is not used: a layer is read already.
func (layer) ReadBytes() ([]byte, error) { return nil, errors.ErrUnsupported }

// Read returns the layer's settings.
func (l layer) Read() (map[string]any, error) { return l, nil }

// load merges defaults, file, environment and flags, the later over the earlier,
// and refuses what is unknown or wrong in any of them.
func load(cmd *cobra.Command, env []string) (*values, error) {
	v := &values{Koanf: koanf.New("."), origin: make(map[string]string)}
	defaults := make(layer)
	for _, s := range settings() {
		defaults[s.name] = s.fallback
		v.origin[s.name] = "default"
	}
	if err := v.Load(defaults, nil); err != nil {
		return nil, err
	}
	if err := v.loadFile(cmd, env); err != nil {
		return nil, err
	}
	if err := v.loadEnv(env); err != nil {
		return nil, err
	}
	if err := v.loadFlags(cmd); err != nil {
		return nil, err
	}
	if err := v.readSecrets(); err != nil {
		return nil, err
	}
	return v, v.agree()
}

// put takes over one value of a layer after checking it.
func (v *values) put(l layer, s *setting, value, origin string) error {
	valid := s.valid
	if s.words != nil {
		valid = oneOf(s.words...)
	}
	if valid != nil {
		if err := valid(value); err != nil {
			return usagef("%s: %w", origin, err)
		}
	}
	l[s.name] = value
	v.origin[s.name] = origin
	return nil
}

// loadFile reads the file of settings. Only one that was asked for must exist.
func (v *values) loadFile(cmd *cobra.Command, env []string) error {
	path, _ := cmd.Flags().GetString("config")
	if path == "" {
		path = lookup(env, envPrefix+"CONFIG")
	}
	asked := path != ""
	if !asked {
		path = defaultFile
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return usagef("settings: %w", err)
	}
	members, err := readMap(path, data)
	if err != nil {
		return err
	}
	known := make(map[string]*setting)
	for _, s := range settings() {
		known[s.key()] = &s
	}
	l := make(layer)
	for _, m := range members {
		origin := fmt.Sprintf("%s:%d:%d", path, m.line, m.column)
		s, ok := known[m.key]
		if !ok {
			return usagef("%s: unknown setting %q%s", origin, m.key, didYouMean(m.key, keys(known)))
		}
		if _, twice := l[s.name]; twice {
			return usagef("%s: setting %q stands there twice", origin, m.key)
		}
		if err := v.put(l, s, m.value, origin+": "+m.key); err != nil {
			return err
		}
		v.origin[s.name] = origin
	}
	return v.Load(l, nil)
}

// member is one line of the file of settings.
type member struct {
	key, value   string
	line, column int
}

// readMap reads a flat YAML mapping of names to plain values.
func readMap(path string, data []byte) ([]member, error) {
	file, err := parser.ParseBytes(bytes.TrimPrefix(data, []byte("\ufeff")), 0)
	if err != nil {
		return nil, badYAML(path, err)
	}
	var members []member
	for _, doc := range file.Docs {
		var nodes []*ast.MappingValueNode
		switch body := doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
		case *ast.MappingNode:
			nodes = body.Values
		case *ast.MappingValueNode:
			nodes = append(nodes, body)
		default:
			return nil, usagef("%s: settings are lines of name: value", path)
		}
		for _, node := range nodes {
			at := node.Key.GetToken().Position
			m := member{key: node.Key.String(), line: at.Line, column: at.Column}
			switch value := node.Value.(type) {
			case *ast.NullNode:
			case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
				m.value = value.GetToken().Value
			default: // the token of a block, tag or anchor is its sign: a secret would be "|"
				return nil, usagef("%s:%d:%d: %s is one plain value on its line", path, at.Line, at.Column, node.Key)
			}
			members = append(members, m)
		}
	}
	return members, nil
}

// badYAML says where a file is no YAML, without the lines around it that the
// parser shows: they may hold a secret.
func badYAML(path string, err error) error {
	var at interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &at) || at.GetToken() == nil {
		return usagef("%s: is no YAML", path)
	}
	position := at.GetToken().Position
	message, _, _ := strings.Cut(at.GetMessage(), "\n")
	return usagef("%s:%d:%d: %s", path, position.Line, position.Column, message)
}

// loadEnv reads the environment. A misspelt variable must not pass for a default.
func (v *values) loadEnv(env []string) error {
	known := map[string]*setting{envPrefix + "CONFIG": nil}
	for _, s := range settings() {
		known[s.variable()] = &s
	}
	l := make(layer)
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || serviceLink(name) {
			continue
		}
		s, ok := known[name]
		switch {
		case !ok:
			return usagef("environment: unknown setting %s%s", name, didYouMean(name, keys(known)))
		case s == nil:
		default:
			if err := v.put(l, s, value, name); err != nil {
				return err
			}
		}
	}
	return v.Load(l, nil)
}

// serviceLink reports whether Kubernetes, not a person, set a variable: it puts
// TALLYGATE_PORT, TALLYGATE_SERVICE_HOST and more into every pod beside a Service
// named tallygate.
func serviceLink(name string) bool {
	return regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`).MatchString(name)
}

// loadFlags reads the flags that were given.
func (v *values) loadFlags(cmd *cobra.Command) error {
	l := make(layer)
	for _, s := range settings() {
		flag := cmd.Flags().Lookup(s.name)
		if flag == nil || !flag.Changed || flag.Annotations[isSetting] == nil {
			continue // a command may have a flag of its own by that name
		}
		if err := v.put(l, &s, flag.Value.String(), "--"+s.name); err != nil {
			return err
		}
	}
	return v.Load(l, nil)
}

// readSecrets replaces each secret by what its file holds.
func (v *values) readSecrets() error {
	l := make(layer)
	for _, s := range settings() {
		path := v.String(s.name + "-file")
		if !s.secret || path == "" {
			continue
		}
		if v.String(s.name) != "" {
			return usagef("%s and %s are both set (%s, %s)", s.name, s.name+"-file", v.origin[s.name], v.origin[s.name+"-file"])
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return usagef("%s: %w", v.origin[s.name+"-file"], err)
		}
		secret := strings.TrimRight(string(data), "\r\n")
		if secret == "" {
			return usagef("%s: %s is empty", v.origin[s.name+"-file"], path)
		}
		l[s.name], v.origin[s.name] = secret, path
	}
	return v.Load(l, nil)
}

// agree refuses settings that contradict each other.
func (v *values) agree() error {
	switch {
	case v.Bool("plain-identities") && v.String("key-hash") != "":
		return usagef("plain-identities (%s) and key-hash (%s) exclude each other", v.origin["plain-identities"], v.origin["key-hash"])
	case v.Bool("http-token-required") && v.String("tokens-file") == "":
		return usagef("http-token-required (%s) needs tokens-file", v.origin["http-token-required"])
	}
	if admin := v.String("admin"); v.String("tokens-file") == "" && admin != "" && !loopback(admin) {
		return usagef("%s: %w", v.where("admin"), notLoopback(admin))
	}
	if err := v.agreeOnIdentity(); err != nil {
		return err
	}
	for _, of := range []string{"store", "control", "http", "listen", "grpc", "admin"} {
		if (v.String(of+"-cert-file") == "") != (v.String(of+"-key-file") == "") {
			return usagef("%s-cert-file and %s-key-file go together: a certificate and its key; name both or none", of, of)
		}
	}
	for _, of := range []string{"http", "listen", "grpc", "admin"} {
		if v.String(of+"-client-ca-file") != "" && v.String(of+"-cert-file") == "" {
			return usagef("%s-client-ca-file needs %s-cert-file: certificates are shown over TLS only", of, of)
		}
	}
	return nil
}

// where is the place of a setting as messages name it.
func (v *values) where(name string) string {
	origin := v.origin[name]
	if strings.HasPrefix(origin, "--") || strings.HasPrefix(origin, envPrefix) {
		return origin
	}
	return origin + ": " + strings.ReplaceAll(name, "-", "_")
}

// isSetting marks flags that are settings.
const isSetting = "tallygate_setting"

// addFlags adds the settings of a command as flags. Their defaults are shown, but
// come from the layer of defaults.
func addFlags(cmd *cobra.Command, of commands) {
	for _, s := range settings() {
		switch {
		case s.flag&of == 0:
			continue
		case s.toggle:
			cmd.Flags().Bool(s.name, false, s.help)
		default:
			cmd.Flags().String(s.name, s.fallback, s.help)
		}
		cmd.Flags().Lookup(s.name).Annotations = map[string][]string{isSetting: {}}
		if s.words != nil {
			completeWords(cmd, s.name, s.words...)
		}
	}
}

func lookup(env []string, name string) string {
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
