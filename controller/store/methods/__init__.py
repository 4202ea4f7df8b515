"""What the store does, a module per topic: methods of `Store`, one transaction each."""
