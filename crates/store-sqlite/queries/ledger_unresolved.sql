SELECT l.class, l.deadline, l.disproved, l.generation, l.epoch, l.input_hash, j.id, l.key, l.node, l.permit, l.permit_id, l.status,
       l.tool, l.updated_at, b.id, l.boot_deadline, l.lifetime, s.id, l.seen_at
FROM ledger l JOIN jobs j ON j.num = l.job LEFT JOIN boots b ON b.num = l.boot LEFT JOIN boots s ON s.num = l.seen_boot
WHERE l.tenant = ?4 AND l.status IN (5, 6) AND l.disproved = 0 AND (l.status = 6 OR j.status IN (4, 5, 6))
  AND (l.updated_at, l.key) > (?2, ?3) ORDER BY l.updated_at, l.key LIMIT ?1
