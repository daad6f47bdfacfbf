-- Payouts of margin, and where workspaces are paid out to.

CREATE TABLE payouts (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, payout_id BLOB NOT NULL,
    state INTEGER NOT NULL, amount INTEGER NOT NULL, reference TEXT, created_at INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, payout_id),
    CHECK (amount > 0)
);
CREATE INDEX payouts_open ON payouts (payout_id) WHERE state < 2;
CREATE INDEX payouts_reference ON payouts (reference) WHERE reference IS NOT NULL;

CREATE TABLE payout_settings (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, account TEXT, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);
CREATE INDEX payout_settings_account ON payout_settings (account) WHERE account IS NOT NULL;
