-- Usage drift: days of a provider whose metered and billed cost differ, and what providers say of their days.

CREATE TABLE drift_windows (
    bucket INTEGER NOT NULL, tenant_id BLOB NOT NULL, provider TEXT NOT NULL, day INTEGER NOT NULL,
    state INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, provider, day)
);
CREATE INDEX drift_windows_open ON drift_windows (day) WHERE state = 0;

-- Reference table: what a provider's invoice or usage export says, for all tenants together.
CREATE TABLE drift_imports (
    provider TEXT NOT NULL, day INTEGER NOT NULL, amount INTEGER NOT NULL,
    source TEXT NOT NULL, imported_at INTEGER NOT NULL, judged_at INTEGER,
    PRIMARY KEY (provider, day),
    CHECK (amount >= 0)
);
CREATE INDEX drift_imports_pending ON drift_imports (day) WHERE judged_at IS NULL;
