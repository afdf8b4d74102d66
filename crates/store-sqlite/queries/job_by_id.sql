SELECT num, seq, generation, epoch, status, head, updated_at, not_before, lease_until, attempt, instance, worker,
       end_requested, plan_hash, error, waiting, id, agent, agent_version, priority, session, labels, created_at,
       pause_reason, paused_at, (SELECT name FROM tenants WHERE tenants.num = jobs.tenant) AS tenant
FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = (SELECT num FROM tenants WHERE name = ?2))
