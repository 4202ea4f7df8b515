"""One run of one stage: planning, execution of its tasks, and what the run prepared."""
