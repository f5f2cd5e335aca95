"""The data pipeline on Spark: featurise, plan, load, read. The only package that imports pyspark."""
