-- The first unfinished job of a job's session, if it came before that job.
SELECT a.num, a.seq, a.generation, a.epoch, a.status, a.head, a.updated_at, a.not_before, a.lease_until, a.attempt, a.instance, a.worker,
       a.end_requested, a.plan_hash, a.error, a.waiting, a.id, a.agent, a.agent_version, a.priority, a.session, a.labels,
       a.created_at, a.pause_reason, a.paused_at, (SELECT name FROM tenants WHERE tenants.num = a.tenant) AS tenant
FROM jobs AS j CROSS JOIN jobs AS a ON a.tenant = j.tenant AND a.agent = j.agent AND a.session = j.session
WHERE j.id = ?1 AND (?2 IS NULL OR j.tenant = (SELECT num FROM tenants WHERE name = ?2)) AND a.session IS NOT NULL AND a.status <> 4 AND a.status <> 5 AND a.status <> 6 AND a.num < j.num ORDER BY a.num LIMIT 1
