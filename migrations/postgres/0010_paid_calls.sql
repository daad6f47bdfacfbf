-- Calls that wallets pay for by themselves. The key begins with the request: it is all that a caller names.

CREATE TABLE paid_calls (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, request_id UUID NOT NULL,
    state SMALLINT NOT NULL, due_at BIGINT NOT NULL, instance UUID NOT NULL, payment_key TEXT COLLATE "C" NOT NULL,
    provider TEXT COLLATE "C", base_cost BIGINT NOT NULL, loss BIGINT NOT NULL,
    created_at BIGINT NOT NULL, ended_at BIGINT, document TEXT NOT NULL,
    PRIMARY KEY (request_id, tenant_id, bucket),
    CHECK (base_cost >= 0 AND loss >= 0)
);
CREATE INDEX paid_calls_open ON paid_calls (due_at) WHERE state < 4;
CREATE INDEX paid_calls_created ON paid_calls (created_at);
