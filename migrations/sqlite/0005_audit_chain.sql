-- The audit log is numbered and chained by hash per workspace, like transfers. Rows from before stand at 0 and below,
-- newest first, without a hash.

ALTER TABLE tenants ADD COLUMN audit_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN audit_chain BLOB NOT NULL DEFAULT x'0000000000000000000000000000000000000000000000000000000000000000';

DROP TRIGGER audit_log_no_update;
ALTER TABLE audit_log ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit_log ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
UPDATE audit_log SET seq = earlier.seq
FROM (SELECT bucket, tenant_id, id,
          1 - ROW_NUMBER() OVER (PARTITION BY bucket, tenant_id ORDER BY at DESC, id DESC) AS seq FROM audit_log) AS earlier
WHERE audit_log.bucket = earlier.bucket AND audit_log.tenant_id = earlier.tenant_id AND audit_log.id = earlier.id;
CREATE UNIQUE INDEX audit_log_seq ON audit_log (bucket, tenant_id, seq);
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
