"""The control loop: decides, executes and records runs; safe against a kill at any moment."""

from controller.loop.assembly import DEFAULT_LOOP_LIMITS, Environment, LoopLimits, Parts
from controller.loop.controller import Controller
from controller.loop.leadership.lease_keeper import Fence, LeaseKeeper
from controller.loop.operations.versions import Arrivals
from controller.loop.runs.retry_policy import RetryPolicy

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
