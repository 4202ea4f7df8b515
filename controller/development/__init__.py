"""For those who write dataflows: the files of a new project, and what follows a saved file."""
