"""Contents of a server, as `headrace inspect ADDRESS` shows them."""
