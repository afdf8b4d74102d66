SELECT num, id, listed IS nullif(status, 1) FROM jobs WHERE num >= ?1 AND num < ?2 ORDER BY num
