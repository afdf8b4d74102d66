SELECT at, conflict, key, node, outcome, permit, permit_id FROM evidence WHERE job = ?1 ORDER BY at, permit_id
