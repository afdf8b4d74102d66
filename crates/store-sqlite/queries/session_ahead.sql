-- The first unfinished job of a job's session, if it came before that job.
SELECT a.num, a.seq, a.generation, a.epoch, a.status, a.head, a.updated_at, a.not_before, a.lease_until, a.attempt, a.instance, a.worker,
       a.end_requested, a.plan_hash, a.error, a.waiting, a.id, a.agent, a.agent_version, a.priority, a.session, a.labels,
       a.created_at, a.pause_reason, a.paused_at
FROM jobs AS j CROSS JOIN jobs AS a ON a.agent = j.agent AND a.session = j.session
WHERE j.id = ?1 AND a.session IS NOT NULL AND a.status NOT IN (4, 5, 6) AND a.num < j.num ORDER BY a.num LIMIT 1
