UPDATE meta SET folder = ?1, opening = ?2 WHERE id = 1
