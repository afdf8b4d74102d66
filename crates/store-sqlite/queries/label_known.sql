SELECT 1 FROM job_labels WHERE tenant = (SELECT num FROM tenants WHERE name = ?4) AND key = ?1 AND value = ?2 AND job = ?3
