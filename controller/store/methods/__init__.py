"""Methods of `Store`, a module per topic, one transaction each."""
