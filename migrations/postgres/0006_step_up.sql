-- Dashboard sessions: step-up tokens, and sessions that were ended before their time.

CREATE TABLE step_up_tokens (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, hash BYTEA NOT NULL,
    issuer TEXT COLLATE "C" NOT NULL, subject TEXT COLLATE "C" NOT NULL, session BYTEA NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, revoked_at BIGINT,
    PRIMARY KEY (bucket, tenant_id, hash)
);
CREATE INDEX step_up_tokens_subject ON step_up_tokens (subject, issuer);
CREATE INDEX step_up_tokens_expiry ON step_up_tokens (expires_at);

-- Reference table: a session belongs to a person, not to a workspace.
CREATE TABLE ended_sessions (
    hash BYTEA NOT NULL PRIMARY KEY, ended_at BIGINT NOT NULL, expires_at BIGINT NOT NULL
);
CREATE INDEX ended_sessions_expiry ON ended_sessions (expires_at);
