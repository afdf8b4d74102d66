UPDATE jobs SET lease_until = ?1
WHERE id = ?2 AND generation = ?3 AND epoch = ?4 AND worker = ?5 AND lease_until > ?6
RETURNING end_requested IS NOT NULL
