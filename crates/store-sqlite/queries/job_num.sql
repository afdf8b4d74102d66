SELECT num FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = (SELECT num FROM tenants WHERE name = ?2))
