SELECT generation, clock, clock_offset, clock_boot, clock_boot_id, writes FROM meta WHERE id = 1
