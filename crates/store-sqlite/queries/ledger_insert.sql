INSERT INTO ledger (key, job, permit, permit_id, status, disproved, class, generation, epoch, deadline, updated_at,
                    input_hash, node, tool, boot, boot_deadline, lifetime, seen_boot, seen_at, tenant)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        (SELECT tenant FROM jobs WHERE num = ?2))
