-- Webhooks: who is told of events, and every attempt to do so.

CREATE UNIQUE INDEX events_id ON events (bucket, tenant_id, id);
-- Of the types that do not come with every call (burn.completed and balance.changed do).
CREATE INDEX events_rare ON events (bucket, tenant_id, type, seq) WHERE type NOT IN (2, 7);

CREATE TABLE webhook_endpoints (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, endpoint_id UUID NOT NULL,
    url TEXT NOT NULL, description TEXT NOT NULL, event_mask BIGINT NOT NULL,
    enabled SMALLINT NOT NULL, disabled_reason SMALLINT, disabled_at BIGINT, failing_since BIGINT,
    deleted SMALLINT NOT NULL DEFAULT 0, canceling SMALLINT NOT NULL DEFAULT 0,
    after_seq BIGINT NOT NULL, secrets TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, endpoint_id)
);
-- Out of use, with attempts that wait to be canceled.
CREATE INDEX webhook_endpoints_canceling ON webhook_endpoints (bucket) WHERE canceling = 1;

-- Up to which event a workspace's endpoints have their first attempts.
CREATE TABLE webhook_cursors (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, seq BIGINT NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
);

CREATE TABLE webhook_deliveries (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, event_seq BIGINT NOT NULL, endpoint_id UUID NOT NULL,
    attempt INTEGER NOT NULL, step SMALLINT NOT NULL, manual_replay SMALLINT NOT NULL, status SMALLINT NOT NULL,
    destination_url TEXT NOT NULL, scheduled_at BIGINT NOT NULL, started_at BIGINT, finished_at BIGINT,
    claim UUID, lease_until BIGINT, http_status SMALLINT, response_body TEXT, error TEXT,
    PRIMARY KEY (bucket, tenant_id, event_seq, endpoint_id, attempt)
);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (bucket, tenant_id, endpoint_id, scheduled_at)
    WHERE status = 0;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (scheduled_at) WHERE status = 0;
CREATE INDEX webhook_deliveries_leases ON webhook_deliveries (lease_until) WHERE status = 1;
