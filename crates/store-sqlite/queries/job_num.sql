SELECT num FROM jobs WHERE id = ?1
