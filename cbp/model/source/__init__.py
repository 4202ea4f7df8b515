"""What a source declares of its files: options, place, names, bad records; pure."""
