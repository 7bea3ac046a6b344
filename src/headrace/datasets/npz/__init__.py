"""Episodes in one npz file."""
