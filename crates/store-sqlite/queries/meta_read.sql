SELECT generation, clock, clock_offset, clock_boot FROM meta WHERE id = 1
