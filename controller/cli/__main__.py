"""`python -m controller.cli`: the same as `cbp`."""

from controller.cli.main import main

main()
