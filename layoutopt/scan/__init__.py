"""Read tables with SQL: prune blocks, read and combine rows, explain skipping, and check it."""
