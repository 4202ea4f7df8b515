"""The control loop: decide what runs, run it and record it; safe against a kill at any moment."""

from controller.loop.assembly import Environment, Parts
from controller.loop.controller import Controller
from controller.loop.leadership.fence import Fence
from controller.loop.leadership.lease_keeper import LeaseKeeper
from controller.loop.loop_limits import DEFAULT_LOOP_LIMITS, LoopLimits
from controller.loop.operations.registration import Arrivals
from controller.loop.runs.retry import RetryPolicy

__all__ = [
    "DEFAULT_LOOP_LIMITS",
    "Arrivals",
    "Controller",
    "Environment",
    "Fence",
    "LeaseKeeper",
    "LoopLimits",
    "Parts",
    "RetryPolicy",
]
