UPDATE jobs SET seq = ?1, head = ?2, updated_at = ?3
WHERE num = ?4 AND seq = ?5 AND generation = ?6 AND epoch = ?7 AND (lease_until IS NOT NULL) >= ?8
