"""People who brush: range filters on several columns whose constants hardly ever recur."""
