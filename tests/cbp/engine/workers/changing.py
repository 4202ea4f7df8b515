"""A translator that changes its process, and one that reports what it finds there."""

from __future__ import annotations

import decimal
import json
import locale
import os
import random
import signal
import sys
import time
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cbp import DataflowBuilder, Input, Output, TranslateRecords
from cbp.model.dataflow.dataflow import Dataflow

__all__ = ["CHANGES", "Change", "Observe", "one_stage"]

SEEN: list[str] = []
LAST = ""


def _zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


def _last() -> None:
    global LAST
    LAST = f"{LAST}+"


def _digits() -> None:
    decimal.getcontext().prec = 3


def _constant() -> None:
    json.dumps = str  # type: ignore[assignment]


def _recursion() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)


def _handler() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _default_digits() -> None:
    decimal.DefaultContext.prec = 3


CHANGES: dict[str, tuple[Any, str]] = {
    "digits": (_digits, "the decimal context"),
    "zone": (_zone, "the time zone"),
    "variable": (lambda: os.environ.update(RATE="2"), "os.environ['RATE']"),
    "folder": (lambda: os.chdir("/"), "the working directory"),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"), "the locale"),
    "handler": (_handler, "the handler of signal['SIGUSR1']"),
    "descriptor": (lambda: os.dup2(os.open("/dev/null", os.O_WRONLY), 1), "descriptor[1]"),
    "path": (lambda: sys.path.insert(0, "/nowhere"), "sys.path"),
    "seed": (lambda: random.seed(1), "the state of the module random"),
    "numpy_seed": (lambda: np.random.seed(1), "the state of numpy.random"),
    "numpy": (lambda: np.seterr(divide="raise"), "numpy.seterr"),
    "recursion": (_recursion, "the recursion limit"),
    "warnings": (lambda: warnings.simplefilter("error"), "the filters of the module warnings"),
    "default_digits": (_default_digits, "the default decimal context"),
    "function": (_constant, "json.dumps"),
    "list": (lambda: SEEN.append("x"), f"{__name__}.SEEN"),
    "global": (_last, f"{__name__}.LAST"),
}
"""By name: what changes the process, and how the error describes it."""


class Change(TranslateRecords):
    """Change the process."""

    urls = Input("url STRING")
    seen = Output("url STRING")

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def translate(self, record: Any, out: Any) -> None:
        """Do it, once for each record."""
        CHANGES[self.kind][0]()
        out.seen(url=record.url)


class Observe(TranslateRecords):
    """Tell what another author's code may have changed."""

    urls = Input("url STRING")
    seen = Output("found STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Emit all of it as one text."""
        found = (
            Decimal("1234.5678") + Decimal("0.0001"),
            datetime.fromtimestamp(0, UTC).astimezone().isoformat(),
            os.environ.get("RATE"),
            Path.cwd(),
            SEEN,
            json.dumps("a"),
        )
        out.seen(found=str(found))


def one_stage(name: str, translator: Any) -> Dataflow:
    """Return a dataflow of one stage."""
    builder = DataflowBuilder(name)
    builder.stage("one", translator, urls=builder.source("urls", "url STRING"))
    return builder.build()
