"""What a table knows of itself, on disk: snapshots, partitions, blocks and their statistics. See SPEC.md."""
