"""What values of Arrow rows are: keys, hashes, expressions and predicates, exactly as Spark computes them."""
