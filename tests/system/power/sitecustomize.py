"""Found by every Python process that has this folder on its path: logs what it makes durable.

The controller, Spark's daemon of Python workers and the workers that are forked from it; see
`tests/system/lossy.py`. Without the variable it does nothing.
"""

import os

if "CBP_TEST_DISK" in os.environ:
    from tests.system.lossy import record_syncs

    record_syncs(os.environ["CBP_TEST_DISK"])
