"""What a layout would save, as values: nothing here reads rows or writes anything."""
