-- Dashboard sessions: step-up tokens, and sessions that were ended before their time.

CREATE TABLE step_up_tokens (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, hash BLOB NOT NULL,
    issuer TEXT NOT NULL, subject TEXT NOT NULL, session BLOB NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, revoked_at INTEGER,
    PRIMARY KEY (bucket, tenant_id, hash)
) WITHOUT ROWID;
CREATE INDEX step_up_tokens_subject ON step_up_tokens (subject, issuer);
CREATE INDEX step_up_tokens_expiry ON step_up_tokens (expires_at);

-- Reference table: a session belongs to a person, not to a workspace.
CREATE TABLE ended_sessions (
    hash BLOB NOT NULL PRIMARY KEY, ended_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX ended_sessions_expiry ON ended_sessions (expires_at);
