"""What comes before every route: the guard, the caller of a request, and the audit log."""
