"""The nouns and their rules, pure: no files, no SQL parser, no Spark."""
