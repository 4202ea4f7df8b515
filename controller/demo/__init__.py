"""The demo: the crawl queue on real input, through the public client, and with its checks.

`run_demo` starts the service, drops files and checks the resulting tables; `cbp demo` calls it.
"""

from controller.demo.run import CheckFailedError, DemoOptions, run_demo

__all__ = ["CheckFailedError", "DemoOptions", "run_demo"]
