SELECT 1 FROM evidence e JOIN jobs j ON j.num = e.job WHERE j.id = ?1 AND e.key = ?2 AND e.conflict = 1
