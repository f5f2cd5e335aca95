"""What of a table's past is kept: vacuums, and notes of what is published."""
