-- Payouts of margin, and where workspaces are paid out to.

CREATE TABLE payouts (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, payout_id UUID NOT NULL,
    state SMALLINT NOT NULL, amount BIGINT NOT NULL, reference TEXT COLLATE "C", created_at BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, payout_id),
    CHECK (amount > 0)
);
CREATE INDEX payouts_open ON payouts (payout_id) WHERE state < 2;
CREATE INDEX payouts_reference ON payouts (reference) WHERE reference IS NOT NULL;

CREATE TABLE payout_settings (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, account TEXT COLLATE "C", document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);
CREATE INDEX payout_settings_account ON payout_settings (account) WHERE account IS NOT NULL;
