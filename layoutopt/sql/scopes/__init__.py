"""Which table a name in a text belongs to, and which conditions reach which scan."""
