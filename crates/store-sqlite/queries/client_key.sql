SELECT id, client_body FROM jobs WHERE tenant = (SELECT num FROM tenants WHERE name = ?3) AND agent = ?1 AND client_key = ?2 AND client_key IS NOT NULL
