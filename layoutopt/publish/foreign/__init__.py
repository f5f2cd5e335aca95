"""Sources whose files somebody else keeps, as tables of Iceberg's: by their names, or by the ids that they have."""
