"""Data structures by which selectors find an item: the sum tree and the heap."""
