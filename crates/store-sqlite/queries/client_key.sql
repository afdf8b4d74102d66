SELECT id, client_body FROM jobs WHERE agent = ?1 AND client_key = ?2 AND client_key IS NOT NULL
