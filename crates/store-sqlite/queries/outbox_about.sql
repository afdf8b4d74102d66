SELECT num, kind, author, target, node, seq FROM outbox WHERE author = ?1 AND target = ?2 ORDER BY num
