"""Reads the tables of the demo, and checks them."""
