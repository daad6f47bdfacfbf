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

-- What may be taken back of the margin is set aside: that of streams which run, and what open disputes may take and
-- do not hold.
INSERT INTO accounts (bucket, tenant_id, kind, owner, posted, held, status, day, day_spent, month, month_spent)
SELECT bucket, tenant_id, 2, '', 0, CAST(SUM(amount) AS INTEGER), 0, 0, 0, 0, 0
FROM (
    SELECT bucket, tenant_id, margin AS amount FROM holds WHERE state = 1 AND finished_at IS NULL
    UNION ALL
    SELECT topups.bucket, topups.tenant_id, CAST(ROUND(1000000.0 * (
        json_extract(value, '$.parts.credits') + json_extract(value, '$.parts.bonus') - json_extract(value, '$.held')
    )) AS INTEGER)
    FROM topups, json_each(topups.document, '$.disputes')
    WHERE unsettled = 1 AND json_extract(value, '$.state') = 'open' AND NOT json_extract(value, '$.parked')
) reserved
WHERE amount > 0
GROUP BY bucket, tenant_id
ON CONFLICT (bucket, tenant_id, kind, owner) DO UPDATE SET held = excluded.held;
