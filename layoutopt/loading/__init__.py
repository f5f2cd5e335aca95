"""Load rows into tables: count, cut into segments, write, compare with the source, commit."""
