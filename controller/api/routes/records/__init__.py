"""Routes of what dataflows hold: files, increments, records, states."""
