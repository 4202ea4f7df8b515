"""The command line `cbp`: a client of the REST interface; it also starts the service."""

from controller.cli.main import main

__all__ = ["main"]
