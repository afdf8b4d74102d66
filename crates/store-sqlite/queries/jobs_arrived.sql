SELECT num, id FROM jobs WHERE num >= ?1 AND num < ?2 ORDER BY num
