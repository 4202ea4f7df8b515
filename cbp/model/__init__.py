"""The model: plain values and pure decisions; standard library only."""
