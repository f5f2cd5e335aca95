"""Files on disks and in object stores, and footers of Parquet files."""
