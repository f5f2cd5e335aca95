"""Tables of other formats as sources: the files of one snapshot, and what of them counts."""
