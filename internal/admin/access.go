package admin

import (
	"fmt"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/admin/token"
)

// access is what an endpoint asks of a token.
type access uint8

const (
	// anybody needs no token.
	anybody access = iota
	// holders needs a token of any role.
	holders
	// following is for pods and readers, reporting for pods and admins alone.
	following
	reporting
	// reading, editing and all need viewer, editor and admin.
	reading
	editing
	all
)

// allows reports whether a role may.
func (a access) allows(role token.Role) bool {
	viewer := role == token.Viewer || role == token.Editor || role == token.Admin
	switch a {
	case anybody:
		return true
	case holders:
		return role != token.Check
	case following:
		return viewer || role == token.Pod
	case reporting:
		return role == token.Admin || role == token.Pod
	case reading:
		return viewer
	case editing:
		return role == token.Editor || role == token.Admin
	case all:
		return role == token.Admin
	}
	return false
}

// needs names the roles that may, the least first.
func (a access) needs() string {
	switch a {
	case following, reporting:
		return "role pod"
	case reading:
		return "role viewer, editor or admin"
	case editing:
		return "role editor or admin"
	case all:
		return "role admin"
	case anybody, holders:
	}
	return "another role"
}

// may refuses a token that an endpoint is not for.
func (e *endpoint) may(t token.Token) error {
	if !e.access.allows(t.Role) {
		return refuse(api.Forbidden, fmt.Sprintf("token %s has role %s, which may not do this; it needs %s", t.Name, t.Role, e.access.needs()))
	}
	if t.Domain != "" && !e.bounded {
		return refuse(api.Forbidden, fmt.Sprintf("token %s is bound to domain %s, and this is about all domains", t.Name, t.Domain))
	}
	return nil
}
