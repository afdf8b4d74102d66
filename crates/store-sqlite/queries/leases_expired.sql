SELECT id, generation, epoch, lease_until FROM jobs
WHERE lease_until IS NOT NULL AND lease_until <= ?1 AND lease_until >= ?3 AND (lease_until, id) > (?3, ?4)
ORDER BY lease_until, id LIMIT ?2
