"""Workers as actors of a Ray cluster. Only modules of this folder import ray, and only when they are used."""
