SELECT num FROM jobs WHERE status = ?1 ORDER BY num
