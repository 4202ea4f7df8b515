"""Play many cases from a shell; see `play`."""

from __future__ import annotations

import sys

from tests.fuzz.play import main

sys.exit(main())
