"""Play many seeds from a shell; see the package's tests for what a default run plays.

python -m tests.simulation --seeds 100000 --from 0 --jobs 2
python -m tests.simulation --from 4711 --seeds 1 --trace       one seed again, step by step
"""

from __future__ import annotations

import sys

from tests.simulation.many import main

sys.exit(main())
