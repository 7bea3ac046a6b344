"""Pages of a store: references to them, their words and rows, and their recovery."""
