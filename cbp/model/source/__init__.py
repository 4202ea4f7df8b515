"""Declarations of a source about its files: options, location, names, bad records; pure."""
