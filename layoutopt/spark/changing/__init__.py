"""What changes a table that is there: rows appended, deleted, updated and merged, partitions laid out anew."""
