"""Recovery: redo after a crash, roll-back, corrections."""
