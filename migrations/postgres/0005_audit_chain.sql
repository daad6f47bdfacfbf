-- The audit log is numbered and chained by hash per workspace, like transfers. Rows from before stand at 0 and below,
-- newest first, without a hash.

ALTER TABLE tenants ADD COLUMN audit_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN audit_chain BYTEA NOT NULL DEFAULT decode(repeat('00', 32), 'hex');

DROP TRIGGER audit_log_append_only ON audit_log;
ALTER TABLE audit_log ADD COLUMN seq BIGINT;
ALTER TABLE audit_log ADD COLUMN hash BYTEA NOT NULL DEFAULT '';
UPDATE audit_log SET seq = earlier.seq
FROM (SELECT bucket, tenant_id, id,
          1 - ROW_NUMBER() OVER (PARTITION BY bucket, tenant_id ORDER BY at DESC, id DESC) AS seq FROM audit_log) AS earlier
WHERE audit_log.bucket = earlier.bucket AND audit_log.tenant_id = earlier.tenant_id AND audit_log.id = earlier.id;
ALTER TABLE audit_log ALTER COLUMN seq SET NOT NULL;
ALTER TABLE audit_log ALTER COLUMN hash DROP DEFAULT;
CREATE UNIQUE INDEX audit_log_seq ON audit_log (bucket, tenant_id, seq);
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_change();
