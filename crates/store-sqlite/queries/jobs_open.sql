-- Held before (7), or not: by whatever stands there that is no end.
SELECT num FROM jobs WHERE status <> 4 AND status <> 5 AND status <> 6 AND (status = 7) = ?1 ORDER BY num
