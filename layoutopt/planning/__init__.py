"""Plan layouts from a source and an analysed log, on any engine that reads the rows."""
