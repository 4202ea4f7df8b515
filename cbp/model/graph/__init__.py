"""Graphs as such: cycles and order of nodes, a layout in layers, and its drawing."""
