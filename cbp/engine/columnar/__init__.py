"""Records as Arrow columns: types, values, key hashes, groups, schema evolution."""
