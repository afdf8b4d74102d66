SELECT num, kind, author, target, node, seq FROM outbox WHERE num > ?1 ORDER BY num LIMIT ?2
