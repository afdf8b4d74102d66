SELECT 1 FROM jobs WHERE agent = ?1 AND session = ?2 AND session IS NOT NULL AND status < 4 AND num < ?3 LIMIT 1
