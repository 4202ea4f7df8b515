"""How a dataflow is executed: which stages run together, in which lane, and as a drawing; pure."""
