"""Where the logs of this process go, and in which form."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from controller.settings import Settings

__all__ = ["configure_logging"]


def configure_logging(settings: Settings) -> None:
    """Send the logs of this process to stderr, one JSON object or one line per entry.

    Every entry has `event`, `level` and `timestamp` (UTC); those of a run also
    `dataflow`, `stage` and `run`.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # No local variables in tracebacks: they hold records, and may hold secrets.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    renderer: list[Any] = [
        structlog.processors.ExceptionRenderer(tracebacks),
        structlog.processors.JSONRenderer(),
    ]
    if settings.log_format == "console":
        plain = structlog.dev.plain_traceback
        renderer = [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.log_level, force=True)
    # These log every listing, every statement, and every connection that ends.
    for noisy in ("apscheduler", "alembic", "py4j", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
