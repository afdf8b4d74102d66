INSERT INTO boots (id) VALUES (?1)
