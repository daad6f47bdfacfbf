-- Money in: top-ups, end users' tokens, and what retirement has to know.

ALTER TABLE tenants ADD COLUMN low_pool INTEGER;
ALTER TABLE tenants ADD COLUMN low_end_user INTEGER;

ALTER TABLE accounts ADD COLUMN freezes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE accounts ADD COLUMN open_calls INTEGER NOT NULL DEFAULT 0;
UPDATE accounts SET open_calls = h.calls
FROM (SELECT bucket, tenant_id, owner, COUNT(*) AS calls FROM holds WHERE finished_at IS NULL
      GROUP BY bucket, tenant_id, owner) AS h
WHERE accounts.kind IN (0, 1) AND h.bucket = accounts.bucket AND h.tenant_id = accounts.tenant_id
    AND h.owner = accounts.owner;

ALTER TABLE end_users ADD COLUMN open_topups INTEGER NOT NULL DEFAULT 0;
ALTER TABLE end_users ADD COLUMN open_refunds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE end_users ADD COLUMN open_disputes INTEGER NOT NULL DEFAULT 0;

ALTER TABLE holds ADD COLUMN token_id BLOB;

-- A purchase of credits with its refunds and disputes; the columns beside the document are what it is found by.
CREATE TABLE topups (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, topup_id BLOB NOT NULL,
    owner TEXT NOT NULL, state INTEGER NOT NULL, unsettled INTEGER NOT NULL,
    created_at INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, topup_id)
);
CREATE INDEX topups_owner ON topups (bucket, tenant_id, owner, topup_id);
CREATE INDEX topups_unsettled ON topups (topup_id) WHERE unsettled = 1;

-- Reference table: finds the top-up that a processor's event tells of.
CREATE TABLE processor_refs (
    reference TEXT NOT NULL PRIMARY KEY, tenant_id BLOB NOT NULL, topup_id BLOB NOT NULL
);

CREATE TABLE auto_topups (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, enabled INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);

CREATE TABLE end_user_tokens (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, token_id BLOB NOT NULL, owner TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, revoked_at INTEGER,
    max_spend INTEGER, spent INTEGER NOT NULL, tools TEXT,
    PRIMARY KEY (bucket, tenant_id, token_id)
);
CREATE INDEX end_user_tokens_owner ON end_user_tokens (bucket, tenant_id, owner);
CREATE INDEX end_user_tokens_expiry ON end_user_tokens (expires_at);

-- Reference table: the keys that sign end users' tokens, sealed under the service's secret.
CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL, sealed BLOB NOT NULL
);
