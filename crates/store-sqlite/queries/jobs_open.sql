-- Held before (7), or not: by whatever stands there that is no end.
SELECT num FROM jobs WHERE status NOT IN (4, 5, 6) AND (status = 7) = ?1 ORDER BY num
