"""One run of a stage: its intention, its publication, its account, and corrections."""
