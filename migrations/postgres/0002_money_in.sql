-- Money in: top-ups, end users' tokens, and what retirement has to know.

ALTER TABLE tenants ADD COLUMN low_pool BIGINT;
ALTER TABLE tenants ADD COLUMN low_end_user BIGINT;

ALTER TABLE accounts ADD COLUMN freezes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE accounts ADD COLUMN open_calls BIGINT NOT NULL DEFAULT 0;
UPDATE accounts SET open_calls = h.calls
FROM (SELECT bucket, tenant_id, owner, COUNT(*) AS calls FROM holds WHERE finished_at IS NULL
      GROUP BY bucket, tenant_id, owner) AS h
WHERE accounts.kind IN (0, 1) AND h.bucket = accounts.bucket AND h.tenant_id = accounts.tenant_id
    AND h.owner = accounts.owner;

ALTER TABLE end_users ADD COLUMN open_topups BIGINT NOT NULL DEFAULT 0;
ALTER TABLE end_users ADD COLUMN open_refunds BIGINT NOT NULL DEFAULT 0;
ALTER TABLE end_users ADD COLUMN open_disputes BIGINT NOT NULL DEFAULT 0;

ALTER TABLE holds ADD COLUMN token_id UUID;

-- A purchase of credits with its refunds and disputes; the columns beside the document are what it is found by.
CREATE TABLE topups (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, topup_id UUID NOT NULL,
    owner TEXT COLLATE "C" NOT NULL, state SMALLINT NOT NULL, unsettled SMALLINT NOT NULL,
    created_at BIGINT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, topup_id)
);
CREATE INDEX topups_owner ON topups (bucket, tenant_id, owner, topup_id);
CREATE INDEX topups_unsettled ON topups (topup_id) WHERE unsettled = 1;

-- Reference table: finds the top-up that a processor's event tells of.
CREATE TABLE processor_refs (
    reference TEXT COLLATE "C" NOT NULL PRIMARY KEY, tenant_id UUID NOT NULL, topup_id UUID NOT NULL
);

CREATE TABLE auto_topups (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, enabled SMALLINT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);

CREATE TABLE end_user_tokens (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, token_id UUID NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, revoked_at BIGINT,
    max_spend BIGINT, spent BIGINT NOT NULL, tools TEXT,
    PRIMARY KEY (bucket, tenant_id, token_id)
);
CREATE INDEX end_user_tokens_owner ON end_user_tokens (bucket, tenant_id, owner);
CREATE INDEX end_user_tokens_expiry ON end_user_tokens (expires_at);

-- Reference table: the keys that sign end users' tokens, sealed under the service's secret.
CREATE TABLE signing_keys (
    kid TEXT COLLATE "C" NOT NULL PRIMARY KEY, created_at BIGINT NOT NULL, sealed BYTEA NOT NULL
);
