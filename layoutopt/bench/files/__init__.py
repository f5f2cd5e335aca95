"""Files of one size, read by readers of others: through `serve`, and by minima and maxima alone."""
