"""Storage: file and table names, atomic writes, checksums, spill files, failpoints."""
