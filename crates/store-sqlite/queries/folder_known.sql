SELECT copied, folder, generation, opening, writes + (SELECT coalesce(max(num), 0) FROM events) FROM meta WHERE id = 1
