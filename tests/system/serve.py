"""`cbp serve`, with a clock that a test can set: `python -m tests.system.serve`.

The file that `CBP_TEST_CLOCK` names holds seconds that are added to the time of the
service's clock port, as if somebody set the machine's clock; the product has no such hook.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from cbp.clock import MACHINE
from controller import cli
from controller.app import asgi
from controller.app.service import Service


def main() -> None:
    """Run the command, its clock replaced where services are made."""
    offset = Path(os.environ["CBP_TEST_CLOCK"])

    def set_by_the_test() -> datetime:
        seconds = offset.read_text() if offset.exists() else ""
        return MACHINE.now() + timedelta(seconds=float(seconds or 0))

    vars(asgi)["Service"] = partial(Service, now=set_by_the_test)
    cli.main()


if __name__ == "__main__":
    main()
