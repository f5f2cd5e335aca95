"""Files that other systems write: folders of Parquet, Delta and Iceberg tables; their versions, rows and indexes."""
