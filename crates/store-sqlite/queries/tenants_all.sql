SELECT num FROM tenants ORDER BY num
