"""A rebuild beside: new tables of a dataflow are built, compared with the present ones, swapped."""
