SELECT id, generation, epoch FROM jobs INDEXED BY jobs_held
WHERE lease_until IS NOT NULL AND instance = ?1 AND id > ?3 ORDER BY id LIMIT ?2
