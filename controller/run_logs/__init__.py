"""The log lines of runs: kept in files of JSON lines, and read for users."""

from controller.run_logs.capture import RunLogHandler
from controller.run_logs.files import RunLogLimits, RunLogs, run_logs_of

__all__ = ["RunLogHandler", "RunLogLimits", "RunLogs", "run_logs_of"]
