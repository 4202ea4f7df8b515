"""One tick, step by step: publish, frame, view, decide, start; `ticker` has the order."""
