"""The log lines of runs: kept in files of JSON lines, and read for users."""

from controller.run_logs.files import RunLogCapture, RunLogFiles, RunLogLimits, run_logs_of

__all__ = ["RunLogCapture", "RunLogFiles", "RunLogLimits", "run_logs_of"]
