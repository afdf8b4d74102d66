INSERT INTO children (parent, child, on_parent_end, node)
SELECT num, ?2, ?3, ?4 FROM jobs WHERE id = ?1
