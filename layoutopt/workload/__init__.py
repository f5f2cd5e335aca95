"""The only importer of sqlglot: reads query logs, turns SQL into the model's queries, moves SQL onto a table."""
