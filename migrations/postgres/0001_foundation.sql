-- The books, their outcomes and the directory. Every key starts with bucket and tenant.

CREATE TABLE tenants (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL,
    name TEXT COLLATE "C" NOT NULL, status SMALLINT NOT NULL, settings TEXT NOT NULL,
    credits_per_dollar BIGINT NOT NULL,
    transfer_seq BIGINT NOT NULL, chain BYTEA NOT NULL, event_seq BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);

CREATE TABLE accounts (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, kind SMALLINT NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    posted BIGINT NOT NULL, held BIGINT NOT NULL, status SMALLINT NOT NULL,
    day BIGINT NOT NULL, day_spent BIGINT NOT NULL, month BIGINT NOT NULL, month_spent BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, kind, owner),
    CHECK (held >= 0),
    CHECK (kind > 1 OR posted >= held)
);

CREATE TABLE end_users (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, external_user_id TEXT COLLATE "C" NOT NULL,
    retired SMALLINT NOT NULL, policy TEXT NOT NULL, created_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, external_user_id)
);

CREATE TABLE holds (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, call_id UUID NOT NULL,
    owner TEXT COLLATE "C" NOT NULL, amount BIGINT NOT NULL, base BIGINT NOT NULL, state SMALLINT NOT NULL,
    instance UUID NOT NULL, day BIGINT NOT NULL, month BIGINT NOT NULL,
    created_at BIGINT NOT NULL, dispatched_at BIGINT, deadline BIGINT NOT NULL, finished_at BIGINT,
    charged BIGINT NOT NULL, margin BIGINT NOT NULL, refunded BIGINT NOT NULL, balance_after BIGINT,
    loss BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, usage TEXT, failure TEXT,
    claim_scope TEXT, claim_key TEXT, loop_id TEXT,
    provider TEXT COLLATE "C" NOT NULL, endpoint TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C", streamed SMALLINT NOT NULL,
    credential TEXT NOT NULL, attribution TEXT, price TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id),
    CHECK (0 <= refunded AND refunded <= charged AND charged <= amount),
    CHECK (state = 1 OR charged = 0)
);
CREATE INDEX holds_open ON holds (deadline) WHERE finished_at IS NULL;

CREATE TABLE claims (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, scope TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    fingerprint BYTEA NOT NULL, subject UUID NOT NULL,
    PRIMARY KEY (bucket, tenant_id, scope, key)
);

CREATE TABLE loops (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, owner TEXT COLLATE "C" NOT NULL, loop_id TEXT COLLATE "C" NOT NULL,
    calls BIGINT NOT NULL, spent BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, owner, loop_id)
);

CREATE TABLE transfers (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, seq BIGINT NOT NULL, id UUID NOT NULL,
    debit_kind SMALLINT NOT NULL, debit_owner TEXT COLLATE "C" NOT NULL,
    credit_kind SMALLINT NOT NULL, credit_owner TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL, cause SMALLINT NOT NULL, call_id UUID, reference TEXT NOT NULL, attribution TEXT,
    debit_after BIGINT NOT NULL, credit_after BIGINT NOT NULL,
    created_at BIGINT NOT NULL, hash BYTEA NOT NULL,
    PRIMARY KEY (bucket, tenant_id, seq),
    CHECK (amount > 0)
);
CREATE INDEX transfers_debit_owner ON transfers (bucket, tenant_id, debit_owner, seq) WHERE debit_owner <> '';
CREATE INDEX transfers_credit_owner ON transfers (bucket, tenant_id, credit_owner, seq) WHERE credit_owner <> '';

CREATE TABLE events (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, seq BIGINT NOT NULL, id UUID NOT NULL,
    type SMALLINT NOT NULL, created_at BIGINT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, seq)
);

CREATE TABLE outcomes (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, call_id UUID NOT NULL,
    kind SMALLINT NOT NULL, body BYTEA, expires_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id)
);
CREATE INDEX outcomes_expiry ON outcomes (expires_at);

CREATE TABLE drifts (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, call_id UUID NOT NULL, kind SMALLINT NOT NULL,
    provider TEXT COLLATE "C" NOT NULL, model TEXT, detail TEXT NOT NULL, charged BIGINT NOT NULL, loss BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, call_id, kind)
);

CREATE TABLE api_keys (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, key_id UUID NOT NULL,
    kind SMALLINT NOT NULL, name TEXT NOT NULL, prefix TEXT NOT NULL, hash BYTEA NOT NULL,
    scopes TEXT NOT NULL, pricing TEXT NOT NULL, tools TEXT,
    created_at BIGINT NOT NULL, created_by TEXT NOT NULL,
    expires_at BIGINT, last_used_at BIGINT, revoked_at BIGINT,
    PRIMARY KEY (bucket, tenant_id, key_id)
);

-- Reference table: finds the tenant of a presented key.
CREATE TABLE key_hashes (
    hash BYTEA NOT NULL PRIMARY KEY, tenant_id UUID NOT NULL, key_id UUID NOT NULL
);

CREATE TABLE members (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, subject TEXT COLLATE "C" NOT NULL,
    role SMALLINT NOT NULL, created_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, subject)
);
CREATE INDEX members_subject ON members (subject);

CREATE TABLE audit_log (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, id UUID NOT NULL,
    at BIGINT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL,
    before_json TEXT, after_json TEXT, origin TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, id)
);

-- Reference tables: prices of models, shared by all tenants.
CREATE TABLE model_prices (
    provider TEXT COLLATE "C" NOT NULL, model TEXT COLLATE "C" NOT NULL, document TEXT NOT NULL, updated_at BIGINT NOT NULL,
    PRIMARY KEY (provider, model)
);
CREATE TABLE revisions (name TEXT NOT NULL PRIMARY KEY, revision BIGINT NOT NULL);
INSERT INTO revisions (name, revision) VALUES ('model_prices', 1);

-- The last batch of each lane: tells a lane whether a commit whose answer was lost has happened. One row for
-- each lane of each process; rows of processes that have ended are removed after a day.
CREATE TABLE lane_marks (
    bucket SMALLINT NOT NULL, lane UUID NOT NULL, batch BIGINT NOT NULL,
    written_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (bucket, lane)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$;
CREATE TRIGGER transfers_append_only BEFORE UPDATE OR DELETE ON transfers FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_append_only BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_change();
