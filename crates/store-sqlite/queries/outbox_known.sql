SELECT 1 FROM outbox WHERE num = ?1
