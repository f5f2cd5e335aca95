"""SQL texts to queries: the only room that knows sqlglot."""
