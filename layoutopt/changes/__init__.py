"""Deletes, updates and merges: the rows that they affect, their deletion vectors or new rows, and one commit."""
