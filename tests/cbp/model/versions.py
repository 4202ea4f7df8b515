"""Versions of one dataflow."""

from __future__ import annotations

from typing import Any

from cbp import DataflowBuilder, Input, Loopback, Output, State, Translate, TranslateRecords
from cbp.model.dataflow.dataflow import Dataflow


class Count(Translate):
    """Counts."""

    words = Input("word STRING", route_by="word")
    counts = State("word STRING, n INT")
    totals = Output("word STRING, n INT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


class CountMore(Count):
    """Counts in more bits."""

    counts = State("word STRING, n BIGINT")


class CountLess(Count):
    """Counts in fewer bits."""

    counts = State("word STRING, n TINYINT")


class ByOther(Count):
    """Has a key of another type."""

    words = Input("word BINARY", route_by="word")
    counts = State("word BINARY, n INT")
    totals = Output("word BINARY, n INT", key="word")


class Named(Count):
    """Keeps counts under a name of their own."""

    counts = State("word STRING, n INT, term STRING", route_by="term")


class Renamed(Count):
    """Keeps the same columns by the key's name again, most first."""

    counts = State("word STRING, n INT, term STRING", order_by="n")


class Echo(TranslateRecords):
    """Has no state."""

    words = Input("word STRING, n INT")
    copies = Output("word STRING, n INT")

    def translate(self, record: Any, out: Any) -> None:
        """Never called here."""


class EchoOtherwise(Echo):
    """The same tables by other code."""

    def translate(self, record: Any, out: Any) -> None:
        """Never called here either."""


class Talks(Translate):
    """Has messages, and no state."""

    words = Input("word STRING", route_by="word")
    notes = Loopback("word STRING", route_by="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


def flow_of(*, source: str = "word STRING", **stages: Any) -> Dataflow:
    """Return a dataflow; a stage is a translator, or one with its buckets, or with its flow."""
    builder = DataflowBuilder("d")
    builder.source("words", source)
    for name, given in stages.items():
        translator, buckets, flow = (given, 4, "words") if not isinstance(given, tuple) else given
        builder.stage(name, translator, words=flow, buckets=buckets)
    return builder.build()
