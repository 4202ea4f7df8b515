"""One run of one stage: planning, execution of its tasks, and the prepared result."""
