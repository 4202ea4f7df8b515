"""Requests to other services: only to addresses that are allowed, and without redirects."""
