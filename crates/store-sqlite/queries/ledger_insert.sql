INSERT INTO ledger (key, job, permit, permit_id, status, disproved, class, generation, epoch, deadline, updated_at,
                    input_hash, node, tool)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
