"""Access control: tokens, sessions, sign-in codes and scopes; and the audit log of changes."""
