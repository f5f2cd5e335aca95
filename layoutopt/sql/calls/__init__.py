"""How calls in conditions are read: functions that Spark types, or fails, by rules of their own."""
