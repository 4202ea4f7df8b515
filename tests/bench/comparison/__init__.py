"""What candidates hold and emit, in a form that can be compared."""
