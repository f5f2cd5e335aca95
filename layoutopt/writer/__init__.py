"""Write a segment to Parquet files: route, encode, write and measure, without Spark."""
