"""The black-box mode: stages without incremental access to state, as a baseline."""
