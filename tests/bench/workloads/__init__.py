"""What is measured: seeded increments, and the dataflows that read them."""
