"""SQL texts: parsing, scans and filters. The only package that imports sqlglot."""
