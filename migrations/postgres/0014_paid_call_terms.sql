-- What is written of a paid call once stands beside what is written with each step. The terms of earlier calls have all
-- members but what was signed, their progress all but the payment.

CREATE TABLE paid_call_terms (
    bucket SMALLINT NOT NULL, tenant_id UUID NOT NULL, request_id UUID NOT NULL,
    payment_key TEXT COLLATE "C" NOT NULL, document TEXT NOT NULL, signed TEXT,
    PRIMARY KEY (request_id, tenant_id, bucket)
);
INSERT INTO paid_call_terms (bucket, tenant_id, request_id, payment_key, document, signed)
    SELECT bucket, tenant_id, request_id, payment_key, (document::jsonb #- '{payment,signed}')::text,
        document::jsonb #>> '{payment,signed}'
    FROM paid_calls;
ALTER TABLE paid_calls DROP COLUMN payment_key;
ALTER TABLE paid_calls RENAME COLUMN document TO progress;
UPDATE paid_calls SET progress = (progress::jsonb - 'payment')::text;
