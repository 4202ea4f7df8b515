"""What comes in, checked: bodies and their bounds, keys, moments, idempotency keys."""
