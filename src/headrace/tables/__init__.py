"""Tables as kernels know them: items, what selectors keep of them, how windows are cut."""
