"""The service: decides which runs start, executes and records them, and shows them."""
