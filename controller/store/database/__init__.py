"""Connections to SQLite and PostgreSQL: transactions, limits, damage, migrations."""
