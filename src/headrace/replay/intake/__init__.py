"""The one way in: steps of any source become rows of the store, and windows of these become items."""
