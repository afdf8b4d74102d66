SELECT at FROM evidence WHERE permit_id = ?1 AND job = ?2
