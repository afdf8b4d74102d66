-- What the fourth version of the schema changes: what the lists of a tenant cost.

-- 1. An index of all jobs of a tenant, which each creation wrote, goes. A page of all of them is merged from the indexes by
-- status (queries/jobs_page.sql).
DROP INDEX jobs_tenant;

-- 2. The calls in doubt of one tenant are found without a look at those of others.
ALTER TABLE ledger ADD COLUMN tenant INTEGER NOT NULL DEFAULT 1;
UPDATE ledger SET tenant = j.tenant FROM jobs j WHERE j.num = ledger.job AND j.tenant <> 1;
DROP INDEX ledger_in_doubt;
DROP INDEX ledger_unresolved;
CREATE INDEX ledger_in_doubt ON ledger (tenant, updated_at, key) WHERE status = 5 AND disproved = 0;
CREATE INDEX ledger_unresolved ON ledger (tenant, updated_at, key) WHERE status IN (5, 6) AND disproved = 0;
