"""Few rows written in this process, without Spark: appends, and the joining of what these left."""
