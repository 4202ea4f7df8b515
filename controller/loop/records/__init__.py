"""Records of dataflows: catalog, descriptions, folders, corrections."""
