"""Files on disks and in object stores, and the footers of Parquet files."""
