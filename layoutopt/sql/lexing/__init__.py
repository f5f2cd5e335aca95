"""How Spark cuts a text into words, where sqlglot would cut it elsewhere."""
