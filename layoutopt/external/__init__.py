"""External files: files that other systems write, with indexes of their row groups kept beside them."""
