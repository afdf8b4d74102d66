SELECT generation FROM meta WHERE id = 1
