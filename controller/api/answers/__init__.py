"""What goes out: schemas, problems with their status, JSON values."""
