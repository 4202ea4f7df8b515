"""For authors of dataflows: the files of a new project, and the reaction to a saved file."""
