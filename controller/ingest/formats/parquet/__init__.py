"""Parquet: its bounds, pages and columns, checked before they are believed."""
