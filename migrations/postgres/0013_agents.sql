-- Agent connections, and the authorization server that makes them.

ALTER TABLE end_user_tokens ADD COLUMN kind SMALLINT NOT NULL DEFAULT 0;
ALTER TABLE end_user_tokens ADD COLUMN max_per_call BIGINT;

-- What an agent connection is beside its row of end_user_tokens, which says whether it works and what it spent.
CREATE TABLE agent_connections (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, agent_id UUID NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL, hash BYTEA, prefix TEXT COLLATE "C", client_id TEXT COLLATE "C", resource TEXT COLLATE "C", scopes TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL, created_by TEXT COLLATE "C" NOT NULL, expires_at BIGINT NOT NULL, last_used_at BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (bucket, tenant_id, agent_id)
);
CREATE UNIQUE INDEX agent_connections_hash ON agent_connections (hash);
CREATE INDEX agent_connections_owner ON agent_connections (bucket, tenant_id, owner, agent_id);
CREATE INDEX agent_connections_expiry ON agent_connections (expires_at);

-- Reference table: a client is of no workspace.
CREATE TABLE oauth_clients (
    client_id TEXT COLLATE "C" NOT NULL PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, redirect_uris TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL
);
CREATE INDEX oauth_clients_expiry ON oauth_clients (expires_at);

-- Reference tables: both are found by their hash alone, before the workspace is known.
CREATE TABLE oauth_codes (
    hash BYTEA NOT NULL PRIMARY KEY, expires_at BIGINT NOT NULL, used_at BIGINT, document TEXT COLLATE "C" NOT NULL
);
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);
CREATE TABLE oauth_tokens (
    hash BYTEA NOT NULL PRIMARY KEY, tenant_id UUID NOT NULL, agent_id UUID NOT NULL, kind SMALLINT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, used_at BIGINT
);
CREATE INDEX oauth_tokens_expiry ON oauth_tokens (expires_at);
