-- What the fifth version of the schema changes: how a job that has not ended is told from one that has. A list of more
-- than two values is a table that SQLite fills anew in each statement that writes a job.
DROP INDEX jobs_session_open;
CREATE INDEX jobs_session_open ON jobs (tenant, agent, session)
WHERE session IS NOT NULL AND status <> 4 AND status <> 5 AND status <> 6;
