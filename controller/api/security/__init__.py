"""What stands before every route: the guard, the caller of a request, and the audit log."""
