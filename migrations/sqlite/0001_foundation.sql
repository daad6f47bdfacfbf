-- The books, their outcomes and the directory. Every key starts with bucket and tenant.

CREATE TABLE tenants (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL,
    name TEXT NOT NULL, status INTEGER NOT NULL, settings TEXT NOT NULL,
    credits_per_dollar INTEGER NOT NULL,
    transfer_seq INTEGER NOT NULL, chain BLOB NOT NULL, event_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
) WITHOUT ROWID;

CREATE TABLE accounts (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, kind INTEGER NOT NULL, owner TEXT NOT NULL,
    posted INTEGER NOT NULL, held INTEGER NOT NULL, status INTEGER NOT NULL,
    day INTEGER NOT NULL, day_spent INTEGER NOT NULL, month INTEGER NOT NULL, month_spent INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, kind, owner),
    CHECK (held >= 0),
    CHECK (kind > 1 OR posted >= held)
) WITHOUT ROWID;

CREATE TABLE end_users (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, external_user_id TEXT NOT NULL,
    retired INTEGER NOT NULL, policy TEXT NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, external_user_id)
) WITHOUT ROWID;

CREATE TABLE holds (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, call_id BLOB NOT NULL,
    owner TEXT NOT NULL, amount INTEGER NOT NULL, base INTEGER NOT NULL, state INTEGER NOT NULL,
    instance BLOB NOT NULL, day INTEGER NOT NULL, month INTEGER NOT NULL,
    created_at INTEGER NOT NULL, dispatched_at INTEGER, deadline INTEGER NOT NULL, finished_at INTEGER,
    charged INTEGER NOT NULL, margin INTEGER NOT NULL, refunded INTEGER NOT NULL, balance_after INTEGER,
    loss INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, usage TEXT, failure TEXT,
    claim_scope TEXT, claim_key TEXT, loop_id TEXT,
    provider TEXT NOT NULL, endpoint TEXT NOT NULL, model TEXT, streamed INTEGER NOT NULL,
    credential TEXT NOT NULL, attribution TEXT, price TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id),
    CHECK (0 <= refunded AND refunded <= charged AND charged <= amount),
    CHECK (state = 1 OR charged = 0)
) WITHOUT ROWID;
CREATE INDEX holds_open ON holds (deadline) WHERE finished_at IS NULL;

CREATE TABLE claims (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint BLOB NOT NULL, subject BLOB NOT NULL,
    PRIMARY KEY (bucket, tenant_id, scope, key)
) WITHOUT ROWID;

CREATE TABLE loops (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, owner TEXT NOT NULL, loop_id TEXT NOT NULL,
    calls INTEGER NOT NULL, spent INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, owner, loop_id)
) WITHOUT ROWID;

CREATE TABLE transfers (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, seq INTEGER NOT NULL, id BLOB NOT NULL,
    debit_kind INTEGER NOT NULL, debit_owner TEXT NOT NULL,
    credit_kind INTEGER NOT NULL, credit_owner TEXT NOT NULL,
    amount INTEGER NOT NULL, cause INTEGER NOT NULL, call_id BLOB, reference TEXT NOT NULL, attribution TEXT,
    debit_after INTEGER NOT NULL, credit_after INTEGER NOT NULL,
    created_at INTEGER NOT NULL, hash BLOB NOT NULL,
    PRIMARY KEY (bucket, tenant_id, seq),
    CHECK (amount > 0)
) WITHOUT ROWID;
CREATE INDEX transfers_debit_owner ON transfers (bucket, tenant_id, debit_owner, seq) WHERE debit_owner <> '';
CREATE INDEX transfers_credit_owner ON transfers (bucket, tenant_id, credit_owner, seq) WHERE credit_owner <> '';
CREATE TRIGGER transfers_no_update BEFORE UPDATE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers are append-only'); END;
CREATE TRIGGER transfers_no_delete BEFORE DELETE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers are append-only'); END;

CREATE TABLE events (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, seq INTEGER NOT NULL, id BLOB NOT NULL,
    type INTEGER NOT NULL, created_at INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, seq)
) WITHOUT ROWID;
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TABLE outcomes (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, call_id BLOB NOT NULL,
    kind INTEGER NOT NULL, body BLOB, expires_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id)
);
CREATE INDEX outcomes_expiry ON outcomes (expires_at);

CREATE TABLE drifts (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, call_id BLOB NOT NULL, kind INTEGER NOT NULL,
    provider TEXT NOT NULL, model TEXT, detail TEXT NOT NULL, charged INTEGER NOT NULL, loss INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id, kind)
) WITHOUT ROWID;

CREATE TABLE api_keys (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, key_id BLOB NOT NULL,
    kind INTEGER NOT NULL, name TEXT NOT NULL, prefix TEXT NOT NULL, hash BLOB NOT NULL,
    scopes TEXT NOT NULL, pricing TEXT NOT NULL, tools TEXT,
    created_at INTEGER NOT NULL, created_by TEXT NOT NULL,
    expires_at INTEGER, last_used_at INTEGER, revoked_at INTEGER,
    PRIMARY KEY (bucket, tenant_id, key_id)
) WITHOUT ROWID;

-- Reference table: finds the tenant of a presented key.
CREATE TABLE key_hashes (
    hash BLOB NOT NULL PRIMARY KEY, tenant_id BLOB NOT NULL, key_id BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE members (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, subject TEXT NOT NULL,
    role INTEGER NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, subject)
) WITHOUT ROWID;
CREATE INDEX members_subject ON members (subject);

CREATE TABLE audit_log (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, id BLOB NOT NULL,
    at INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL,
    before_json TEXT, after_json TEXT, origin TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, id)
) WITHOUT ROWID;
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- Reference tables: prices of models, shared by all tenants.
CREATE TABLE model_prices (
    provider TEXT NOT NULL, model TEXT NOT NULL, document TEXT NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model)
) WITHOUT ROWID;
CREATE TABLE revisions (name TEXT NOT NULL PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO revisions (name, revision) VALUES ('model_prices', 1);
