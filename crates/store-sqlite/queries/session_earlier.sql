SELECT 1 FROM jobs WHERE tenant = ?4 AND agent = ?1 AND session = ?2 AND session IS NOT NULL AND status NOT IN (4, 5, 6) AND num < ?3 LIMIT 1
