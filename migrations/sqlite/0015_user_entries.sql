-- One end user's entries are looked for by owner; a wallet's never are, and each of its calls would be written in twice.
-- The kind is a column of the index so that a page of entries is found without a look into the table.
DROP INDEX transfers_debit_owner;
DROP INDEX transfers_credit_owner;
CREATE INDEX transfers_debited_user ON transfers (bucket, tenant_id, debit_owner, seq, debit_kind) WHERE debit_kind = 1;
CREATE INDEX transfers_credited_user ON transfers (bucket, tenant_id, credit_owner, seq, credit_kind)
    WHERE credit_kind = 1;
