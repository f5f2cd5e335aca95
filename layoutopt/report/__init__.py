"""What people look at: tables in a terminal, JSON, HTML pages, plots."""
