"""Routes of the data of dataflows: files, increments, records, states."""
