"""Files that somebody else writes and keeps: indexes of their row groups, measured beside them and refreshed."""
