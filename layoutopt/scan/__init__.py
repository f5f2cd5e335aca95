"""From SQL and a catalog to rows: prune, read, reconstruct; and what is skipped, why, and whether it is true."""
