-- Times are Unix ms, keys are lists in JSON, bodies are JSON as package rules
-- writes it; '' is none.

-- +goose Up
CREATE TABLE revision (
    id       SMALLINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
);
INSERT INTO revision (id, revision) VALUES (1, 0);

CREATE TABLE rules (
    id            TEXT COLLATE "C" PRIMARY KEY,
    version       BIGINT NOT NULL CHECK (version > 0),
    revision      BIGINT NOT NULL,
    live          TEXT NOT NULL,
    live_version  BIGINT NOT NULL,
    previous      BIGINT NOT NULL DEFAULT 0,
    candidate     TEXT NOT NULL DEFAULT '',
    stage         TEXT NOT NULL DEFAULT '',
    percent       SMALLINT NOT NULL DEFAULT 0,
    since_ms      BIGINT NOT NULL DEFAULT 0,
    deleted       BOOLEAN NOT NULL DEFAULT FALSE,
    changed_at_ms BIGINT NOT NULL
);
CREATE INDEX rules_by_revision ON rules (revision);

-- What a rule was after each of its changes.
CREATE TABLE versions (
    rule_id       TEXT COLLATE "C" NOT NULL,
    version       BIGINT NOT NULL,
    revision      BIGINT NOT NULL,
    live          TEXT NOT NULL,
    live_version  BIGINT NOT NULL,
    previous      BIGINT NOT NULL,
    candidate     TEXT NOT NULL,
    stage         TEXT NOT NULL,
    percent       SMALLINT NOT NULL,
    since_ms      BIGINT NOT NULL,
    deleted       BOOLEAN NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    action        TEXT NOT NULL,
    who           TEXT NOT NULL,
    why           TEXT NOT NULL,
    PRIMARY KEY (rule_id, version)
);

CREATE TABLE overrides (
    rule_id       TEXT COLLATE "C" NOT NULL,
    key_id        TEXT COLLATE "C" NOT NULL,
    key_json      TEXT NOT NULL,
    body          TEXT NOT NULL,
    version       BIGINT NOT NULL CHECK (version > 0),
    revision      BIGINT NOT NULL,
    deleted       BOOLEAN NOT NULL DEFAULT FALSE,
    changed_at_ms BIGINT NOT NULL,
    PRIMARY KEY (rule_id, key_id)
);
CREATE INDEX overrides_by_revision ON overrides (revision);

CREATE TABLE resets (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_id  TEXT COLLATE "C" NOT NULL,
    key_json TEXT NOT NULL,
    revision BIGINT NOT NULL,
    at_ms    BIGINT NOT NULL
);
CREATE INDEX resets_by_revision ON resets (revision);

CREATE TABLE audit (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision BIGINT NOT NULL,
    at_ms    BIGINT NOT NULL,
    who      TEXT NOT NULL,
    why      TEXT NOT NULL,
    action   TEXT NOT NULL,
    rule_id  TEXT COLLATE "C" NOT NULL,
    key_json TEXT NOT NULL,
    version  BIGINT NOT NULL,
    was      TEXT NOT NULL,
    became   TEXT NOT NULL
);
CREATE INDEX audit_by_rule ON audit (rule_id, id);

-- +goose Down
DROP TABLE audit;
DROP TABLE resets;
DROP TABLE overrides;
DROP TABLE versions;
DROP TABLE rules;
DROP TABLE revision;
