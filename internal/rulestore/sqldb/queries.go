package sqldb

// ruleColumns, overrideColumns and auditColumns are read by scanRule,
// scanOverride and scanEntry, in this order.
const (
	ruleColumns     = `version, revision, live, live_version, previous, candidate, stage, percent, since_ms, deleted, changed_at_ms`
	overrideColumns = `rule_id, key_id, key_json, body, version, revision, deleted, changed_at_ms`
	auditColumns    = `id, revision, at_ms, who, why, action, rule_id, key_json, version, was, became`
)

const (
	queryRevision = `SELECT revision FROM revision WHERE id = 1`
	setRevision   = `UPDATE revision SET revision = $1 WHERE id = 1`

	queryRules      = `SELECT id, ` + ruleColumns + ` FROM rules WHERE NOT deleted`
	queryRulesSince = `SELECT id, ` + ruleColumns + ` FROM rules WHERE revision > $1 ORDER BY revision, id`
	queryRule       = `SELECT id, ` + ruleColumns + ` FROM rules WHERE id = $1`
	putRule         = `INSERT INTO rules (id, ` + ruleColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO UPDATE SET
			version = excluded.version, revision = excluded.revision, live = excluded.live,
			live_version = excluded.live_version, previous = excluded.previous, candidate = excluded.candidate,
			stage = excluded.stage, percent = excluded.percent, since_ms = excluded.since_ms,
			deleted = excluded.deleted, changed_at_ms = excluded.changed_at_ms`

	queryVersion = `SELECT rule_id, ` + ruleColumns + `, action, who, why FROM versions WHERE rule_id = $1 AND version = $2`
	queryHistory = `SELECT rule_id, ` + ruleColumns + `, action, who, why FROM versions
		WHERE rule_id = $1 AND version < $2 ORDER BY version DESC LIMIT $3`
	addVersion = `INSERT INTO versions (rule_id, ` + ruleColumns + `, action, who, why)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

	queryOverrides      = `SELECT ` + overrideColumns + ` FROM overrides WHERE NOT deleted`
	queryOverridesSince = `SELECT ` + overrideColumns + ` FROM overrides WHERE revision > $1 ORDER BY revision, rule_id, key_id`
	queryOverride       = `SELECT ` + overrideColumns + ` FROM overrides WHERE rule_id = $1 AND key_id = $2`
	queryOverridesOf    = `SELECT ` + overrideColumns + ` FROM overrides WHERE rule_id = $1 AND NOT deleted ORDER BY key_id`
	queryOverridesPage  = `SELECT ` + overrideColumns + ` FROM overrides
		WHERE NOT deleted AND ($1 = '' OR rule_id = $1) AND (rule_id > $2 OR rule_id = $2 AND key_id > $3)
		ORDER BY rule_id, key_id LIMIT $4`
	// Of some of a rule, and of many rows at once: see writer.fetch and insert.
	queryOverridesIn = `SELECT ` + overrideColumns + ` FROM overrides WHERE rule_id = $1 AND key_id IN `
	putOverrides     = `INSERT INTO overrides (` + overrideColumns + `) `
	replaceOverrides = ` ON CONFLICT (rule_id, key_id) DO UPDATE SET
			key_json = excluded.key_json, body = excluded.body, version = excluded.version, revision = excluded.revision,
			deleted = excluded.deleted, changed_at_ms = excluded.changed_at_ms`

	// Of all overrides of a rule: first the audit, from what they are, then the change.
	addLifts = `INSERT INTO audit (revision, at_ms, who, why, action, rule_id, key_json, version, was, became)
		SELECT CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), rule_id, key_json, version + 1, body, ''
		FROM overrides WHERE rule_id = $1 AND NOT deleted ORDER BY key_id`
	liftOverrides = `UPDATE overrides SET version = version + 1, revision = $2, deleted = TRUE, changed_at_ms = $3
		WHERE rule_id = $1 AND NOT deleted`

	queryResetsSince = `SELECT rule_id, key_json, revision, at_ms FROM resets WHERE revision > $1 ORDER BY id`
	addReset         = `INSERT INTO resets (rule_id, key_json, revision, at_ms) VALUES ($1, $2, $3, $4)`
	pruneResets      = `DELETE FROM resets WHERE at_ms < $1`

	addEntries = `INSERT INTO audit (revision, at_ms, who, why, action, rule_id, key_json, version, was, became) `
	queryAudit = `SELECT ` + auditColumns + ` FROM audit
		WHERE ($1 = '' OR rule_id = $1) AND ($2 = '' OR key_json = $2) AND ($3 = '' OR who = $3) AND ($4 = '' OR action = $4)
			AND at_ms >= $5 AND at_ms < $6 AND id < $7
		ORDER BY id DESC LIMIT $8`
)
