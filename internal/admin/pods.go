package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
)

func (a *API) pods(c *call) (answer, error) {
	if a.cfg.Fleet == nil {
		return answer{}, refuse(api.NotFound, "nobody reports to this process"+a.elsewhere())
	}
	v, err := a.mirror.view(c.r.Context())
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	out := api.Pods{Revision: v.Revision, Pods: []api.Pod{}}
	for _, p := range a.cfg.Fleet.Pods() {
		r := p.Report
		out.Pods = append(out.Pods, api.Pod{
			Pod: r.Pod, Revision: r.Revision, Version: r.Version, UptimeMS: r.UptimeMS, Faults: r.Faults, Shards: r.Shards,
			SeenAt: p.SeenAt, Live: p.Live, Behind: p.Behind,
		})
	}
	return answer{body: out}, nil
}

// elsewhere says where the control plane is, if this process follows one.
func (a *API) elsewhere() string {
	if a.cfg.ControlPlane == "" {
		return ""
	}
	return ": it follows the control plane at " + a.cfg.ControlPlane + "; ask there"
}

func (a *API) report(c *call) (answer, error) {
	if a.cfg.Fleet == nil {
		return answer{}, refuse(api.NotFound, "nobody listens to reports here"+a.elsewhere())
	}
	if err := wellFormed(c.body); err != nil {
		return answer{}, err
	}
	// Unknown fields are passed over: pods of the next release report as well.
	var r fleet.Report
	if err := json.Unmarshal(c.body, &r); err != nil {
		return answer{}, refuseAt(api.BadRequest, "#", clip(strings.TrimPrefix(err.Error(), "json: ")))
	}
	if r.Pod != c.param("id") {
		return answer{}, refuseAt(api.BadRequest, "#/pod", "the report is of another pod than the path")
	}
	receipt, err := a.cfg.Fleet.Report(c.r.Context(), r)
	if fault, ok := errors.AsType[*fleet.FaultError](err); ok {
		return answer{}, refuse(api.BadRequest, clip(fault.Error()))
	}
	return answer{body: receipt}, err
}

func (a *API) audit(c *call) (answer, error) {
	filter, err := c.auditFilter()
	if err != nil {
		return answer{}, err
	}
	ctx := c.r.Context()
	entries, err := a.cfg.Auditor.Audit(ctx, filter)
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	page := api.Audit{Entries: []api.Entry{}}
	if len(entries) == filter.Limit {
		page.Next = entries[filter.Limit-1].ID
	}
	var v view
	if c.token.Domain != "" {
		if v, err = a.mirror.view(ctx); err != nil {
			return answer{}, ofStore(err, nil)
		}
	}
	for i := range entries {
		if c.seesEntry(&v, &entries[i]) {
			page.Entries = append(page.Entries, api.OfEntry(entries[i]))
		}
	}
	return answer{body: page}, nil
}

// seesEntry reports whether a caller may see a line of the audit. Where the domain
// of an override's or a reset's rule is not known any more, only callers of all
// domains do.
func (c *call) seesEntry(v *view, e *rulestore.Entry) bool {
	if c.token.Domain == "" {
		return true
	}
	if ofRule(e.Action) {
		return seesState(c.token, e.Before, e.After)
	}
	of, ok := v.facts[e.Rule]
	return ok && of.domain == c.token.Domain && !of.foreign
}

func (c *call) auditFilter() (f rulestore.AuditFilter, err error) {
	f = rulestore.AuditFilter{Rule: c.query.Get("rule"), Who: c.query.Get("who"), Action: rulestore.Action(c.query.Get("action"))}
	if f.Action != "" && !slices.Contains(rulestore.Actions(), f.Action) {
		return f, refuse(api.BadRequest, fmt.Sprintf("there is no action %q", clip(string(f.Action))))
	}
	if f.Key, err = c.key(); err != nil {
		return f, err
	}
	if f.From, err = c.time("from"); err != nil {
		return f, err
	}
	if f.To, err = c.time("to"); err != nil {
		return f, err
	}
	if f.Before, err = c.number("before", 0); err != nil {
		return f, err
	}
	f.Limit, err = c.limit()
	return f, err
}
