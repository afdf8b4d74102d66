DELETE FROM outbox WHERE num = ?1
