-- What the third version of the schema adds: tenants. A name that a client gives is a name within its tenant, so that the
-- tenant stands first in every key and index that such a name is part of, and in those that find a tenant's lists. It has
-- a number here; whatever was there before there were tenants is of the first, `default`.
CREATE TABLE tenants (
    num INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO tenants (num, name) VALUES (1, 'default');

-- 1. Jobs.
ALTER TABLE jobs ADD COLUMN tenant INTEGER NOT NULL DEFAULT 1;
DROP INDEX jobs_session;
DROP INDEX jobs_session_open;
DROP INDEX jobs_client_key;
DROP INDEX jobs_listed;
DROP INDEX jobs_agent;
DROP INDEX jobs_agent_listed;
DROP INDEX jobs_blocked;
CREATE INDEX jobs_tenant ON jobs (tenant, id);
CREATE INDEX jobs_session ON jobs (tenant, session, id) WHERE session IS NOT NULL;
CREATE INDEX jobs_session_open ON jobs (tenant, agent, session) WHERE session IS NOT NULL AND status NOT IN (4, 5, 6);
CREATE UNIQUE INDEX jobs_client_key ON jobs (tenant, agent, client_key) WHERE client_key IS NOT NULL;
CREATE INDEX jobs_listed ON jobs (tenant, listed, id) WHERE listed IS NOT NULL;
CREATE INDEX jobs_agent ON jobs (tenant, agent, id);
CREATE INDEX jobs_agent_listed ON jobs (tenant, agent, listed, id) WHERE listed <> 4;
CREATE INDEX jobs_blocked ON jobs (tenant, wait_type, id) WHERE wait_type IS NOT NULL;

-- 2. Labels.
CREATE TABLE job_labels_next (
    tenant INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    job BLOB NOT NULL CHECK (length(job) = 16),
    PRIMARY KEY (tenant, key, value, job)
) STRICT, WITHOUT ROWID;
INSERT INTO job_labels_next (tenant, key, value, job) SELECT 1, key, value, job FROM job_labels;
DROP TABLE job_labels;
ALTER TABLE job_labels_next RENAME TO job_labels;

-- 3. Agents.
CREATE TABLE agents_next (
    tenant INTEGER NOT NULL,
    name TEXT NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    plan_hash BLOB NOT NULL CHECK (length(plan_hash) = 32),
    version TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    doc TEXT NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
INSERT INTO agents_next (tenant, name, hash, plan_hash, version, updated_at, doc, source)
SELECT 1, name, hash, plan_hash, version, updated_at, doc, source FROM agents;
DROP TABLE agents;
ALTER TABLE agents_next RENAME TO agents;

-- 4. For people with a shell.
DROP VIEW job_list;
CREATE VIEW job_list AS
SELECT lower(hex(j.id)) AS job, t.name AS tenant, s.name AS status, j.agent, j.agent_version, j.seq,
       j.generation || '.' || j.epoch AS fence, j.worker, j.session, j.priority,
       strftime('%Y-%m-%dT%H:%M:%f', j.created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%f', j.updated_at / 1000000.0, 'unixepoch') AS updated_at,
       j.waiting, j.error,
       CASE j.pause_reason WHEN 0 THEN 'operator' WHEN 1 THEN 'restored' END AS pause_reason,
       strftime('%Y-%m-%dT%H:%M:%f', j.paused_at / 1000000.0, 'unixepoch') AS paused_at
FROM jobs j JOIN job_statuses s ON s.code = j.status LEFT JOIN tenants t ON t.num = j.tenant;
