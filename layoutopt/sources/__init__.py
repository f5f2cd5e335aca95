"""Work on tables by processes of this machine, without Spark."""
