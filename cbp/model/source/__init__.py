"""Declarations of a source about its files: options, place, names, bad records; pure."""
