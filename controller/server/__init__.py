"""The service as a process that listens on a port."""
