"""One segment to Parquet files, without Spark: route, slice, encode, write, measure."""
