INSERT INTO evidence (permit_id, job, key, permit, conflict, at, node, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (job, permit_id) DO NOTHING
