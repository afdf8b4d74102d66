UPDATE jobs SET ready = 0, delayed_until = ?2 WHERE num = ?1 AND status = 0
