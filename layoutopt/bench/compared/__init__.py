"""Methods compared on tables that are really written: of people's ranges, and of a user's own table and log."""
