"""Routes of dataflows, their stages and runs: what they are, how they go, what steers them."""
