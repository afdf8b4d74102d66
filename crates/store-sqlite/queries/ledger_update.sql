UPDATE ledger
SET permit = ?3, permit_id = ?4, status = ?5, disproved = ?6, class = ?7, generation = ?8, epoch = ?9, deadline = ?10,
    updated_at = ?11, input_hash = ?12, node = ?13, tool = ?14, boot = ?15, boot_deadline = ?16, lifetime = ?17,
    seen_boot = ?18, seen_at = ?19
WHERE key = ?1 AND job = ?2 AND permit = ?20 AND permit_id = ?21 AND status = ?22 AND disproved = ?23
