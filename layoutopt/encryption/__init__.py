"""Encrypted tables: keys that are named by references, and files that are sealed."""
