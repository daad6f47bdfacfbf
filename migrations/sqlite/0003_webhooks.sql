-- Webhooks: who is told of events, and every attempt to do so.

CREATE UNIQUE INDEX events_id ON events (bucket, tenant_id, id);
-- Of the types that do not come with every call (burn.completed and balance.changed do).
CREATE INDEX events_rare ON events (bucket, tenant_id, type, seq) WHERE type NOT IN (2, 7);

CREATE TABLE webhook_endpoints (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, endpoint_id BLOB NOT NULL,
    url TEXT NOT NULL, description TEXT NOT NULL, event_mask INTEGER NOT NULL,
    enabled INTEGER NOT NULL, disabled_reason INTEGER, disabled_at INTEGER, failing_since INTEGER,
    deleted INTEGER NOT NULL DEFAULT 0, canceling INTEGER NOT NULL DEFAULT 0,
    after_seq INTEGER NOT NULL, secrets TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id, endpoint_id)
) WITHOUT ROWID;
-- Out of use, with attempts that wait to be canceled.
CREATE INDEX webhook_endpoints_canceling ON webhook_endpoints (bucket) WHERE canceling = 1;

-- Up to which event a workspace's endpoints have their first attempts.
CREATE TABLE webhook_cursors (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (bucket, tenant_id)
) WITHOUT ROWID;

CREATE TABLE webhook_deliveries (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, event_seq INTEGER NOT NULL, endpoint_id BLOB NOT NULL,
    attempt INTEGER NOT NULL, step INTEGER NOT NULL, manual_replay INTEGER NOT NULL, status INTEGER NOT NULL,
    destination_url TEXT NOT NULL, scheduled_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER,
    claim BLOB, lease_until INTEGER, http_status INTEGER, response_body TEXT, error TEXT,
    PRIMARY KEY (bucket, tenant_id, event_seq, endpoint_id, attempt)
) WITHOUT ROWID;
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (bucket, tenant_id, endpoint_id, scheduled_at)
    WHERE status = 0;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (scheduled_at) WHERE status = 0;
CREATE INDEX webhook_deliveries_leases ON webhook_deliveries (lease_until) WHERE status = 1;
