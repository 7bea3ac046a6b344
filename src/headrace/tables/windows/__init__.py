"""Windows on the rows of lanes, as a rule finds them."""
