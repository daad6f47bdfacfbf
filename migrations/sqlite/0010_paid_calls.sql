-- Calls that wallets pay for by themselves. The key begins with the request: it is all that a caller names.

CREATE TABLE paid_calls (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, request_id BLOB NOT NULL,
    state INTEGER NOT NULL, due_at INTEGER NOT NULL, instance BLOB NOT NULL, payment_key TEXT NOT NULL,
    provider TEXT, base_cost INTEGER NOT NULL, loss INTEGER NOT NULL,
    created_at INTEGER NOT NULL, ended_at INTEGER, document TEXT NOT NULL,
    PRIMARY KEY (request_id, tenant_id, bucket),
    CHECK (base_cost >= 0 AND loss >= 0)
);
CREATE INDEX paid_calls_open ON paid_calls (due_at) WHERE state < 4;
CREATE INDEX paid_calls_created ON paid_calls (created_at);
