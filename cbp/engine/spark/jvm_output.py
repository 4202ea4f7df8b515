"""Output of Spark's JVM while it starts: held back, and shown only if the start fails.

Spark prints a hundred lines about the jars that it found. None of them helps, unless one of the
jars was not found. After the start every line is passed on to the standard error of this process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from contextlib import suppress

_HELD_MAX = 2_000
_SHOWN_MAX = 8
_ERRORS = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "SERVER ERROR", "Exception", "rror")


class JvmOutput:
    """The standard error of a JVM, line by line; `descriptor` is given to its process."""

    def __init__(self) -> None:
        self._read, self.descriptor = os.pipe()
        self._held: deque[bytes] = deque(maxlen=_HELD_MAX)
        self._lock, self._is_passed_on = threading.Lock(), False
        self._thread = threading.Thread(target=self._pump, name="spark-output", daemon=True)
        self._thread.start()

    def pass_on(self) -> None:
        """Drop the lines held back, and pass on every line from now on."""
        with self._lock:
            self._held.clear()
            self._is_passed_on = True

    def detach(self) -> None:
        """Close this process's end for writing, once another process has its own."""
        with suppress(OSError):
            os.close(self.descriptor)

    def reason(self) -> str:
        """Return the lines that explain a failed start: errors, or otherwise the last lines."""
        with self._lock:
            lines = [line.decode(errors="replace").strip(" \t:") for line in self._held]
        texts = [text for text in dict.fromkeys(line.strip() for line in lines) if text]
        errors = [text for text in texts if any(sign in text for sign in _ERRORS)]
        return "; ".join((errors or texts[-_SHOWN_MAX:])[:_SHOWN_MAX])

    def wait(self, seconds: float) -> None:
        """Wait until the last line of an ended process is read."""
        self._thread.join(seconds)

    def _pump(self) -> None:
        with os.fdopen(self._read, "rb") as stream:
            for line in stream:
                with self._lock:
                    if not self._is_passed_on:
                        self._held.append(line)
                        continue
                with suppress(OSError, ValueError):  # the reader is gone
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()
