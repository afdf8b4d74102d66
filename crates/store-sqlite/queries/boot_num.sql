SELECT num FROM boots WHERE id = ?1
