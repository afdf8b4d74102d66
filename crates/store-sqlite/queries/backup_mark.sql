UPDATE meta SET copied = 1, folder = NULL, opening = NULL
