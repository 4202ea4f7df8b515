"""The state of a stage: run files, index copies, deletion vectors, compaction."""
