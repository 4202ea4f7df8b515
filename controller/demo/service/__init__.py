"""The service that the demo starts, and how far its dataflow is."""
