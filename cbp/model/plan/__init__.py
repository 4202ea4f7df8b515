"""How a dataflow is executed: which stages run together, in which lane; drawn; pure."""
