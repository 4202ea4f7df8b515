"""Commands on records: send files, read flows and states, correct them."""
