INSERT INTO effects (job, key, permit, permit_id, at, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (job, key, permit) DO NOTHING
