"""The dataflow graph that an author declares: sources, stages, wiring, routing, Runnables."""
