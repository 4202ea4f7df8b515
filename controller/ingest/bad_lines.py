"""Collects the wrong lines of one file, so that the rejection reports them together.

A reader notes a wrong line and continues, so that the producer can repair all wrong lines at
once. The file is rejected as a whole: after the first wrong line no more records are yielded.
At most 100 lines are reported, the first ones. The reader continues for a bounded number of
lines; `lines_more` says that later lines may be wrong too.
"""

from __future__ import annotations

from bisect import insort

from controller.ingest.rejection import BadLine, FileRejectedError

__all__ = ["LINES_MAX", "BadLines"]

LINES_MAX = 100
LOOK_FURTHER_LINES = 1_000_000
_MESSAGE_MAX = 400


class BadLines:
    """Collects wrong lines; true once it holds one."""

    def __init__(self) -> None:
        self._found: list[BadLine] = []
        self._dropped = False
        self._seen = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def wants(self, line: int) -> bool:
        """Return whether a mistake on this line would be among the reported ones."""
        if len(self._found) < LINES_MAX or line < self._found[-1].line:
            return True
        self._dropped = True
        return False

    def add(
        self, rule: str, message: str, *, line: int, column: str | None = None, cause: str = ""
    ) -> None:
        """Note a mistake; the arguments are those of `FileRejectedError`."""
        if self.wants(line):
            short = message if len(message) <= _MESSAGE_MAX else message[:_MESSAGE_MAX] + "..."
            bad_line = BadLine(line, column, rule, short, cause[:_MESSAGE_MAX])
            insort(self._found, bad_line, key=lambda bad: bad.line)
            if len(self._found) > LINES_MAX:
                self._dropped = True
                del self._found[LINES_MAX:]

    def check(self, lines: int) -> None:
        """Raise the mistakes if there are enough; called after each batch of `lines` lines."""
        if self._found:
            self._seen += lines
            if len(self._found) >= LINES_MAX or self._seen > LOOK_FURTHER_LINES:
                raise self.error(more=True)

    def end(self) -> None:
        """Raise the mistakes, if any, at the end of the file."""
        if self._found:
            raise self.error(more=self._dropped)

    def joined(self, last: FileRejectedError) -> FileRejectedError:
        """Return the mistakes so far together with `last`, the error that ended the reading."""
        if last.lines or not self._found:
            return last
        if last.line is not None:
            self.add(last.rule, last.message, line=last.line, column=last.column, cause=last.cause)
            return self.error(more=True)
        # The file as a whole is damaged: that is reported first.
        last.lines, last.lines_more = tuple(self._found), True
        return last

    def error(self, *, more: bool) -> FileRejectedError:
        """Return the error of the earliest line; it lists all the others."""
        first = self._found[0]
        return FileRejectedError(
            rule=first.rule,
            message=first.message,
            line=first.line,
            column=first.column,
            cause=first.cause,
            lines=tuple(self._found),
            lines_more=more,
        )
