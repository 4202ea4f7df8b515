"""What operators are shown of the sources: the last pass, the folders, failures."""
