"""The catalog: snapshots, commits, blocks and their statistics (SPEC.md)."""
