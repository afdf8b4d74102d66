SELECT id, generation, epoch FROM jobs
WHERE lease_until IS NOT NULL AND lease_until <= ?1 ORDER BY lease_until, id LIMIT ?2
