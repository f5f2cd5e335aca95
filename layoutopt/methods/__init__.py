"""Methods of laying out a table: each turns what planning knows into a layout proposal."""
