SELECT num, seq, generation, epoch, status, head, not_before, lease_until, attempt, instance, worker,
       end_requested, plan_hash, error IS NOT NULL OR waiting IS NOT NULL, session, agent, tenant
FROM jobs WHERE id = ?1
