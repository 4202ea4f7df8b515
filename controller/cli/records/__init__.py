"""Commands on records: hand files in, look at flows and states, correct them."""
