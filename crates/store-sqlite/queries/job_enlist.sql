UPDATE jobs SET listed = status WHERE num = ?1 AND status = 0 AND listed IS NULL
