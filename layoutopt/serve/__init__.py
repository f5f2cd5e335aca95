"""An Iceberg REST catalog that plans scans: engines read only files with a block that may match."""
