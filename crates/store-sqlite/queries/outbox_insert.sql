INSERT INTO outbox (kind, author, target, node, seq) VALUES (?1, ?2, ?3, ?4, ?5)
