UPDATE jobs SET ready = 1
WHERE num = (
    SELECT num FROM jobs WHERE tenant = ?3 AND agent = ?1 AND session = ?2 AND session IS NOT NULL AND status <> 4 AND status <> 5 AND status <> 6 ORDER BY num LIMIT 1)
  AND status = 0 AND delayed_until IS NULL AND ready = 0
