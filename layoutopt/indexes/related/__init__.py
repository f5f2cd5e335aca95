"""Types of indexes that are also asked about more than their own expression: functions of it, several columns."""
