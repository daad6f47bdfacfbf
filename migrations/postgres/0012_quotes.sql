-- Quotes of tools' prices, and approvals that owners and admins decide about.

ALTER TABLE holds ADD COLUMN quote_id UUID;
ALTER TABLE holds ADD COLUMN approval_id UUID;

CREATE TABLE quotes (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, quote_id UUID NOT NULL,
    state SMALLINT NOT NULL, owner TEXT COLLATE "C" NOT NULL, expires_at BIGINT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, quote_id)
);
CREATE INDEX quotes_open ON quotes (bucket, tenant_id, owner) WHERE state = 0;
CREATE INDEX quotes_unused ON quotes (expires_at) WHERE state <> 1;

CREATE TABLE approvals (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, approval_id UUID NOT NULL,
    state SMALLINT NOT NULL, is_open SMALLINT NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL, expires_at BIGINT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (bucket, tenant_id, approval_id)
);
CREATE INDEX approvals_id ON approvals (approval_id);
CREATE INDEX approvals_open ON approvals (bucket, tenant_id, owner) WHERE is_open = 1;
CREATE INDEX approvals_subject ON approvals (bucket, tenant_id, subject, approval_id);
CREATE INDEX approvals_unused ON approvals (expires_at) WHERE state IN (0, 2, 3, 4);
