SELECT j.num, j.seq, j.generation, j.epoch, j.status, j.head, j.updated_at, j.not_before, j.lease_until, j.attempt, j.instance, j.worker,
       j.end_requested, j.plan_hash, j.error, j.waiting, j.id, j.agent, j.agent_version, j.priority, j.session, j.labels, j.created_at,
       j.pause_reason, j.paused_at, (SELECT name FROM tenants WHERE tenants.num = j.tenant) AS tenant, c.node, c.on_parent_end, c.child
FROM children AS c JOIN jobs AS j ON j.num = c.child
WHERE c.parent = ?1 AND c.child > ?2
ORDER BY c.child LIMIT ?3
