"""Configures the logs of this process: their destinations, format and masks."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any, TextIO

import structlog

from cbp.errors.author import AuthorCodeError
from cbp.errors.masks import Masker, keep_secret
from controller.access.secret_text import mask_tokens
from controller.run_logs import RunLogCapture, run_logs_of
from controller.settings import SECRET_PART_LENGTH_MIN, Settings

Entry = MutableMapping[str, Any]

_INTERNAL_FIELDS = frozenset({"_record", "_from_structlog", "exc_info"})


def configure_logging(settings: Settings) -> None:
    """Send the logs of this process to stderr, one JSON object or one line per entry.

    Every entry has `event`, `level` and `timestamp` (UTC). Entries of a run also have
    `dataflow`, `stage`, `epoch` and `run`. Entries of a request have `request`, and with a
    credential also `actor` and `session`. Entries of runs are also kept in files
    (`controller.run_logs`). Secrets are masked in both forms, and in every error of this
    process, since errors are also stored and listed.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # No local variables in tracebacks: they contain records, and may contain secrets.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    secrets = settings.secret_values()
    keep_secret(secrets, length_min=SECRET_PART_LENGTH_MIN)
    masker = Masker(secrets, length_min=SECRET_PART_LENGTH_MIN)
    mask = partial(_mask_entry, masker)
    as_values: list[Any] = [structlog.processors.ExceptionRenderer(tracebacks), mask]
    renderer: list[Any] = [*as_values, structlog.processors.JSONRenderer()]
    if settings.log_format == "console":
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=plain
        )
        renderer = [_without_our_frames, mask, console, partial(_mask_line, masker)]
    handler = _ErrorOutput(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    run_log_handler = RunLogCapture(run_logs_of(settings), shared, as_values)
    logging.basicConfig(handlers=[handler, run_log_handler], level=settings.log_level, force=True)
    # These log each listing, statement, closed connection, and request that this process sends.
    # The address of a request to a webhook is a secret.
    quiet = ("aiobotocore", "apscheduler", "alembic", "botocore", "fsspec", "httpcore", "httpx")
    for noisy in (*quiet, "py4j", "s3fs"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class _ErrorOutput(logging.StreamHandler[TextIO]):
    """Writes to stderr; a line that cannot be written is lost.

    By default, logging would print it unmasked.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing, since the failure is in the log itself."""


def _mask_entry(masker: Masker, _logger: Any, _method: str, entry: Entry) -> Entry:
    """Mask the fields of an entry; fields of the logging library are not JSON values."""
    for name, value in entry.items():
        if name not in _INTERNAL_FIELDS:
            entry[name] = mask_tokens(masker.field(name, value))
    return entry


def _mask_line(masker: Masker, _logger: Any, _method: str, line: str) -> str:
    """Mask a finished line, since the text of an exception is not in a field."""
    return str(mask_tokens(masker.text(line)))


def _without_our_frames(_logger: Any, _name: str, entry: Entry) -> Entry:
    """Replace the traceback of an author's mistake, which shows our frames, by one line.

    The line names the place in the author's code. The log of the run has the complete traceback
    (`cbp logs RUN`).
    """
    given = entry.get("exc_info")
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, AuthorCodeError):
        del entry["exc_info"]
        entry["error"] = error.message
    return entry
