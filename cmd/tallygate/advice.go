package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore/remote"
)

// advised adds to what an API refuses what to do about it on the command line.
func advised(err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok {
		return err
	}
	if e.Code == api.NotProven { // which speaks of JSON
		why, _, _ := strings.Cut(e.Detail, "; to promote it nevertheless")
		return fmt.Errorf("%s; --force promotes it nevertheless", why)
	}
	if text := advice(e.Code); text != "" {
		return fmt.Errorf("%w; %s", err, text)
	}
	return err
}

// advice is what to do about a code, "" where the sentence with it says it.
func advice(code api.Code) string {
	switch code { //nolint:exhaustive // see above
	case api.Code(tallygate.CodeUnknownDomain):
		return "--domain names another"
	case api.Unauthorized:
		return "show a token with --token-file or TALLYGATE_TOKEN_FILE"
	default:
		return ""
	}
}

// away says what to look at where nobody answered: what should be there, and the flag
// that names another place.
func away(err error, what, flag, where string) error {
	if err != nil && (unreachable(err) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("%w; is a %s running there? %s names another than %s", err, what, flag, maskURL(where))
	}
	return err
}
