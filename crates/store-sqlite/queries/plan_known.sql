SELECT 1 FROM plans WHERE hash = ?1
