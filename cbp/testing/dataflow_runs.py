"""Run a whole dataflow in memory, increment by increment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from rich.progress import track

from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.reference.stage import whole
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import identity
from cbp.testing.result import Result, result_of


def run_dataflow(
    dataflow: Dataflow,
    increments: Mapping[str, Iterable[Iterable[Any] | None]],
    *,
    at_once: bool = False,
    close: bool = False,
    parts_of: Callable[[list[Any]], list[list[Any]]] = whole,
    progress: bool = False,
    times: Sequence[datetime] = (),
) -> Result:
    """Run a whole dataflow; the n-th increments of all sources arrive at the same time.

    Each increment is like a file with its own name. As in the service, an increment is left out
    if its source declares `duplicates: skip` or `quarantine` and an earlier increment of that
    source has the same records in the same order.

    Args:
        increments: Maps each source to its increments; each is an iterable of records, or `None`
            if none arrives then.
        at_once, close: As in `run_epochs`.
        parts_of: Cuts the records of a group into parts. A combiner is called once for each
            part of two or more records. Default: one part with all records.
        progress: Whether to show a progress bar over the increments, in a terminal or a notebook.
        times: Values of `group.run.time`, aware and rising: the n-th is the time of runs after
            the n-th increments. Times beyond the last increment are steps without input;
            increments beyond the last time use the last one. Default: 1970 for all runs.

    Returns:
        Outputs by flow (`stage.output`), state by `stage.state`.

    Raises:
        NotFoundError: There is no such source.
        TypeError: A record does not fit its source.
        ValueError: A time is not aware, or earlier than the one before.
    """
    _require_rising(times)
    waiting = accepted(dataflow, increments)
    engine = ReferenceEngine(dataflow, parts_of=parts_of)
    numbers = range(max([len(times), *map(len, waiting.values())]))
    for number in track(numbers, dataflow.name, disable=not progress):
        engine.time = times[number] if number < len(times) else engine.time
        for source, arrivals in waiting.items():
            arrival = arrivals[number] if number < len(arrivals) else None
            if arrival is not None:
                engine.feed(source, arrival)
        if not at_once:
            engine.run_until_idle()
    for source in dataflow.sources if close else ():
        engine.close(source)
    engine.run_until_idle()
    return result_of(dataflow, engine)


def accepted(
    dataflow: Dataflow, increments: Mapping[str, Iterable[Iterable[Any] | None]]
) -> dict[str, list[list[Any] | None]]:
    """Return the increments that a dataflow takes in; a repetition becomes `None`."""
    engine = ReferenceEngine(dataflow)
    taken: dict[str, list[list[Any] | None]] = {}
    for source, arrivals in increments.items():
        if source not in dataflow.sources:
            raise NotFoundError(kind="source", name=source)
        known, mine = set[Any](), list[list[Any] | None]()
        for arrival in arrivals:
            rows = None if arrival is None else engine.rows_of(source, arrival)
            if rows is not None and dataflow.sources[source].duplicates != "accept":
                content = identity(rows)
                rows = None if content in known else rows
                known.add(content)
            mine.append(rows)
        taken[source] = mine
    return taken


def taking_all(dataflow: Dataflow) -> Dataflow:
    """Return a dataflow whose sources also take in repeated increments."""
    sources = {n: replace(source, duplicates="accept") for n, source in dataflow.sources.items()}
    return replace(dataflow, sources=MappingProxyType(sources))


def _require_rising(times: Sequence[datetime]) -> None:
    for at, time in enumerate(times):
        if time.utcoffset() is None:
            message = (
                f"times[{at}] is {time!r}; expected a time with a time zone, such as tzinfo=UTC"
            )
            raise ValueError(message)
        if at and time < times[at - 1]:
            message = (
                f"times[{at}] is {time}, which is earlier than {times[at - 1]}; times must not "
                "decrease"
            )
            raise ValueError(message)
