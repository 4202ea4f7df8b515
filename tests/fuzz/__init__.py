"""Dropped files of every format, made from sound ones and damaged; judged by other readers."""
