-- Agent connections, and the authorization server that makes them.

ALTER TABLE end_user_tokens ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE end_user_tokens ADD COLUMN max_per_call INTEGER;

-- What an agent connection is beside its row of end_user_tokens, which says whether it works and what it spent.
CREATE TABLE agent_connections (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, agent_id BLOB NOT NULL, owner TEXT NOT NULL,
    name TEXT NOT NULL, hash BLOB, prefix TEXT, client_id TEXT, resource TEXT, scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL, created_by TEXT NOT NULL, expires_at INTEGER NOT NULL, last_used_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (bucket, tenant_id, agent_id)
);
CREATE UNIQUE INDEX agent_connections_hash ON agent_connections (hash);
CREATE INDEX agent_connections_owner ON agent_connections (bucket, tenant_id, owner, agent_id);
CREATE INDEX agent_connections_expiry ON agent_connections (expires_at);

-- Reference table: a client is of no workspace.
CREATE TABLE oauth_clients (
    client_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, redirect_uris TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
);
CREATE INDEX oauth_clients_expiry ON oauth_clients (expires_at);

-- Reference tables: both are found by their hash alone, before the workspace is known.
CREATE TABLE oauth_codes (
    hash BLOB NOT NULL PRIMARY KEY, expires_at INTEGER NOT NULL, used_at INTEGER, document TEXT NOT NULL
);
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);
CREATE TABLE oauth_tokens (
    hash BLOB NOT NULL PRIMARY KEY, tenant_id BLOB NOT NULL, agent_id BLOB NOT NULL, kind INTEGER NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, used_at INTEGER
);
CREATE INDEX oauth_tokens_expiry ON oauth_tokens (expires_at);
