SELECT num FROM tenants WHERE name = ?1
