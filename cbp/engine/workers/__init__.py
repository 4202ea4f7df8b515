"""Worker processes that run tasks: how work and code reach them, and how their ends are noticed."""
