"""Read tables of other formats as sources: the files of one snapshot and their live rows."""
