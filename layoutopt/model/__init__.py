"""The nouns and the rules about them, pure: no files, no SQL parser, no Spark."""
