"""Publish a table in another format over the same data files."""
