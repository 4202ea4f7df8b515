"""The command line `cbp`: a client of the REST interface, and the way to start the service."""

from controller.cli.main import main

__all__ = ["main"]
