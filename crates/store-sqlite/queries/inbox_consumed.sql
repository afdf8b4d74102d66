SELECT signal FROM inbox WHERE job = ?1 AND state = 1 ORDER BY num
