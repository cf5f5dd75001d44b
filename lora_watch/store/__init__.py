"""Delta tables: append with positions, scan, compact."""
