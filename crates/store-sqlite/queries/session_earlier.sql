SELECT 1 FROM jobs WHERE tenant = ?4 AND agent = ?1 AND session = ?2 AND session IS NOT NULL AND status <> 4 AND status <> 5 AND status <> 6 AND num < ?3 LIMIT 1
