-- A tenant's jobs, newest first. Lists find them by status, so that a new job costs no index of its own: the newest of
-- each status, read from the index alone, and those that run, which are as few as there are slots.
WITH newest AS (
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 0 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 2 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 3 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 4 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 5 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 6 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT * FROM (SELECT num, id FROM jobs INDEXED BY jobs_listed
                   WHERE tenant = ?10 AND id < ?1 AND listed IS NOT NULL AND listed = 7 ORDER BY id DESC LIMIT ?9)
    UNION ALL
    SELECT num, id FROM jobs INDEXED BY jobs_held WHERE tenant = ?10 AND id < ?1 AND lease_until IS NOT NULL
    ORDER BY id DESC LIMIT ?9
)
SELECT num, seq, generation, epoch, status, head, updated_at, not_before, lease_until, attempt, instance, worker,
       end_requested, plan_hash, error, waiting, id, agent, agent_version, priority, session, labels, created_at,
       pause_reason, paused_at, (SELECT name FROM tenants WHERE tenants.num = jobs.tenant) AS tenant
FROM jobs WHERE num IN (SELECT num FROM newest) ORDER BY id DESC
