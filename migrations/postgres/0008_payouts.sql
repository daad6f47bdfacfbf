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

-- What may be taken back of the margin is set aside: that of streams which run, and what open disputes may take and
-- do not hold.
INSERT INTO accounts (bucket, tenant_id, kind, owner, posted, held, status, day, day_spent, month, month_spent)
SELECT bucket, tenant_id, 2, '', 0, CAST(SUM(amount) AS BIGINT), 0, 0, 0, 0, 0
FROM (
    SELECT bucket, tenant_id, margin AS amount FROM holds WHERE state = 1 AND finished_at IS NULL
    UNION ALL
    SELECT bucket, tenant_id, CAST(1000000 * (
        (it #>> '{parts,credits}')::numeric + (it #>> '{parts,bonus}')::numeric - (it ->> 'held')::numeric
    ) AS BIGINT)
    FROM topups, jsonb_array_elements(document::jsonb -> 'disputes') it
    WHERE unsettled = 1 AND it ->> 'state' = 'open' AND NOT (it ->> 'parked')::boolean
) reserved
WHERE amount > 0
GROUP BY bucket, tenant_id
ON CONFLICT (bucket, tenant_id, kind, owner) DO UPDATE SET held = excluded.held;
