"""What the store does, a module per topic: methods of `SqlStore`, one transaction each."""
