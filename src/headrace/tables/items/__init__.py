"""The arrays of a table's items, and the kernels that insert, draw, change and recover them."""
