UPDATE ledger
SET permit = ?3, permit_id = ?4, status = ?5, disproved = ?6, class = ?7, generation = ?8, epoch = ?9, deadline = ?10,
    updated_at = ?11, input_hash = ?12, node = ?13, tool = ?14
WHERE key = ?1 AND job = ?2 AND permit = ?15 AND permit_id = ?16 AND status = ?17 AND disproved = ?18
