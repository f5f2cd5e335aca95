"""Search for schemes: column grouping, local features, replication (Sun 2017, chapters 4 and 5)."""
