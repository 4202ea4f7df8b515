"""The loop: decide what runs, run it, record it; survive being killed anywhere."""

from controller.loop.controller import Arrivals, Controller
from controller.loop.leadership import Fence, Leadership
from controller.loop.parts import Environment
from controller.loop.runs import RetryPolicy

__all__ = ["Arrivals", "Controller", "Environment", "Fence", "Leadership", "RetryPolicy"]
