SELECT doc FROM plans WHERE hash = ?1
