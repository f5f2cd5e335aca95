"""From feature vectors, or an order of the rows, to blocks: one algorithm a file, all of one protocol."""
