UPDATE meta SET copied = 0, folder = NULL, opening = NULL, generation = ?1
