-- Times are Unix ms, keys are lists in JSON, bodies are JSON as package rules
-- writes it; '' is none.

-- +goose Up
CREATE TABLE revision (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO revision (id, revision) VALUES (1, 0);

CREATE TABLE rules (
    id            TEXT PRIMARY KEY NOT NULL,
    version       INTEGER NOT NULL CHECK (version > 0),
    revision      INTEGER NOT NULL,
    live          TEXT NOT NULL,
    live_version  INTEGER NOT NULL,
    previous      INTEGER NOT NULL DEFAULT 0,
    candidate     TEXT NOT NULL DEFAULT '',
    stage         TEXT NOT NULL DEFAULT '',
    percent       INTEGER NOT NULL DEFAULT 0,
    since_ms      INTEGER NOT NULL DEFAULT 0,
    deleted       INTEGER NOT NULL DEFAULT FALSE CHECK (deleted IN (0, 1)),
    changed_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX rules_by_revision ON rules (revision);

-- What a rule was after each of its changes.
CREATE TABLE versions (
    rule_id       TEXT NOT NULL,
    version       INTEGER NOT NULL,
    revision      INTEGER NOT NULL,
    live          TEXT NOT NULL,
    live_version  INTEGER NOT NULL,
    previous      INTEGER NOT NULL,
    candidate     TEXT NOT NULL,
    stage         TEXT NOT NULL,
    percent       INTEGER NOT NULL,
    since_ms      INTEGER NOT NULL,
    deleted       INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    changed_at_ms INTEGER NOT NULL,
    action        TEXT NOT NULL,
    who           TEXT NOT NULL,
    why           TEXT NOT NULL,
    PRIMARY KEY (rule_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE overrides (
    rule_id       TEXT NOT NULL,
    key_id        TEXT NOT NULL,
    key_json      TEXT NOT NULL,
    body          TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version > 0),
    revision      INTEGER NOT NULL,
    deleted       INTEGER NOT NULL DEFAULT FALSE CHECK (deleted IN (0, 1)),
    changed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (rule_id, key_id)
) STRICT;
CREATE INDEX overrides_by_revision ON overrides (revision);

CREATE TABLE resets (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    rule_id  TEXT NOT NULL,
    key_json TEXT NOT NULL,
    revision INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL
) STRICT;
CREATE INDEX resets_by_revision ON resets (revision);

CREATE TABLE audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    revision INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    who      TEXT NOT NULL,
    why      TEXT NOT NULL,
    action   TEXT NOT NULL,
    rule_id  TEXT NOT NULL,
    key_json TEXT NOT NULL,
    version  INTEGER NOT NULL,
    was      TEXT NOT NULL,
    became   TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_rule ON audit (rule_id, id);

-- +goose Down
DROP TABLE audit;
DROP TABLE resets;
DROP TABLE overrides;
DROP TABLE versions;
DROP TABLE rules;
DROP TABLE revision;
