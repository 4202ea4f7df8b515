"""Routes of dataflows, their stages and runs: definition, progress and control."""
