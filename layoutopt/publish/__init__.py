"""Showing a table as one of another format, over the same data files."""
