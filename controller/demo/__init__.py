"""The demo: runs the main job on real input, from the first file to the last check.

`run_demo` starts the service, gives it files and checks the resulting tables; `cbp demo` calls it.
"""

from controller.demo.errors import CheckFailedError
from controller.demo.options import DemoOptions
from controller.demo.run import run_demo

__all__ = ["CheckFailedError", "DemoOptions", "run_demo"]
