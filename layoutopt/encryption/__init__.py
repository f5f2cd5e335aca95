"""Encrypted tables: key references, table keys and sealed files."""
