SELECT at FROM events WHERE job = (SELECT num FROM jobs WHERE id = ?1) AND kind = ?2 ORDER BY seq DESC LIMIT 1
