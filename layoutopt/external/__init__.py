"""External files, which other systems write, and the indexes of their row groups."""
