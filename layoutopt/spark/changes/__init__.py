"""Change a table: append, delete, update, merge and rewrite rows and partitions."""
