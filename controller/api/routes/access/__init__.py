"""Routes of access: links, sessions, tokens and the audit log."""
