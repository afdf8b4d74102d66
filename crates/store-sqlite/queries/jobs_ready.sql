SELECT num FROM jobs WHERE status = 0 AND ready = 1 ORDER BY priority DESC, id LIMIT ?1
