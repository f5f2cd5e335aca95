"""The table inside a Spark session: names, views, reading."""
