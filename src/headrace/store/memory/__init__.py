"""Memory of a store: where its arrays lie, and errors when there is none left."""
