SELECT at FROM effects WHERE job = ?1 AND key = ?2 AND permit = ?3 AND result = ?4
