-- Usage drift: days of a provider whose metered and billed cost differ, and what providers say of their days.

CREATE TABLE drift_windows (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, provider TEXT COLLATE "C" NOT NULL, day BIGINT NOT NULL,
    state SMALLINT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, provider, day)
);
CREATE INDEX drift_windows_open ON drift_windows (day) WHERE state = 0;

-- Reference table: what a provider's invoice or usage export says, for all tenants together.
CREATE TABLE drift_imports (
    provider TEXT COLLATE "C" NOT NULL, day BIGINT NOT NULL, amount BIGINT NOT NULL,
    source TEXT NOT NULL, imported_at BIGINT NOT NULL, judged_at BIGINT,
    PRIMARY KEY (provider, day),
    CHECK (amount >= 0)
);
CREATE INDEX drift_imports_pending ON drift_imports (day) WHERE judged_at IS NULL;
