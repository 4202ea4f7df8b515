"""Formats the results of several benchmarks as Markdown (`python -m tests.bench tables`).

    documents (--json) -> one table of URL counts, one of everything else, and where a peer wins

A cell is the median of its rounds, with the minimum and the maximum. If several documents have the
same case, the first one counts, since some candidates take part in several.

Guaranteed: a result of fewer than `ROUNDS` rounds has a star; a document that was ended before all
candidates were compared is named (tests/bench/reports/test_markdown.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.bench.options import OURS, URL_COUNT

__all__ = ["BEGIN", "END", "ROUNDS", "markdown", "placed"]

ROUNDS = 7
BEGIN = "<!-- figures: begin, made by python -m tests.bench tables -->"
END = "<!-- figures: end -->"

_OF_OURS = (OURS, "jobs", "service")
_NAMES = {
    OURS: "**ours**, {form}",
    "jobs": "**ours**, {form}, every run a Spark job",
    "service": "**ours**, {form}, end to end through the service",
    "duckdb-key": "DuckDB, primary key",
    "duckdb-update": "DuckDB, no index, `UPDATE` and `INSERT`",
    "duckdb-parquet": "DuckDB, Parquet file rewritten",
    "polars": "Polars, Parquet file rewritten",
    "streaming": "Structured Streaming, RocksDB",
    "merge-files": "Delta MERGE, files rewritten",
    "merge-vectors": "Delta MERGE, deletion vectors",
    "rewrite": "Spark SQL, table rewritten",
    "blackbox": "our translator, state shuffled and rewritten",
    "paper-a": "the paper's bar (a), `ALL` broadcast",
    "paper-b": "the paper's bar (b), state stays in its buckets",
    "scratch": "one process, from scratch",
    "warm": "one process, from the last result",
}
_VERSIONS = {"python": "Python", "pyspark": "Spark", "duckdb": "DuckDB", "polars": "Polars"}

Result = Mapping[str, Any]
"""One entry of a document's `results`."""


def markdown(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of some documents; pure.

    Args:
        documents: Name of a document to its content; the name is shown if it is incomplete.
    """
    results = [one for document in documents.values() for one in document["results"]]
    counts = [one for one in results if one["workload"] == URL_COUNT]
    others = [one for one in results if one["workload"] != URL_COUNT]
    parts = [_machine(next(iter(documents.values()))), _counts(counts), _others(others)]
    few = any(len(one["seconds_all"]) < ROUNDS for one in results)
    parts.append(f"\\* Fewer than {ROUNDS} rounds, since one takes long." if few else "")
    parts.append(_won(results))
    unfinished = [name for name, document in documents.items() if not document.get("complete")]
    parts.append(f"Ended before all was compared: {', '.join(unfinished)}." if unfinished else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def placed(text: str, tables: str) -> str:
    """Return a text with the tables placed between its two lines `BEGIN` and `END`; pure.

    Raises:
        ValueError: The text lacks these lines.
    """
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not (begin and end):
        message = f"a line {BEGIN} and a line {END} are expected"
        raise ValueError(message)
    return f"{before}{begin}\n{tables}\n{end}{after}"


def _machine(document: Mapping[str, Any]) -> str:
    machine, versions = document["machine"], document["versions"]
    memory = f"{machine['memory_bytes'] / (1 << 30):.0f} GB"
    packages = ", ".join(f"{name} {versions[p]}" for p, name in _VERSIONS.items() if p in versions)
    return f"{machine['cores']} cores, {memory}; {packages}. Median seconds (least to most)."


def _counts(results: Sequence[Result]) -> str:
    """Return the table of URL counts: a column per size of increment."""
    first = _first(results)
    states = sorted({state for state, *_ in first})
    return "\n\n".join(_of_state(state, first) for state in reversed(states))


def _of_state(state: int, first: Mapping[tuple[Any, ...], Result]) -> str:
    mine = {key[1:]: one for key, one in first.items() if key[0] == state}
    sizes = sorted({size for size, *_ in mine})
    least = {s: min(o["seconds_median"] for k, o in mine.items() if k[0] == s) for s in sizes}
    columns = [*(f"{size:,}" for size in sizes), "CPU s", "cold s", "copies"]
    head = f"URL count, {state:,} keys"
    rows = [_row([head, *columns]), _row(["---"] * (1 + len(columns)))]
    for who in dict.fromkeys(key[1:] for key in mine):
        by = {size: mine[size, *who] for size in sizes if (size, *who) in mine}
        cells = [_cell(by[s], least[s]) if s in by else "" for s in sizes]
        busy = " / ".join(_number(by[s]["cpu_seconds"]) if s in by else "-" for s in sizes)
        one = next(iter(by.values()))
        rows.append(_row([_name(one), *cells, busy, _number(one["cold_seconds"]), _copies(by)]))
    if floors := {s: o["floor_seconds"] for (s, *_), o in mine.items() if o["floor_seconds"]}:
        cells = [_number(floors.get(size)) for size in sizes]
        rows.append(_row(["an empty Spark job with as many tasks", *cells, "", "", ""]))
    return "\n".join(rows)


def _others(results: Sequence[Result]) -> str:
    """Return the table of all other workloads: a row per candidate."""
    first = _first(results)
    if not first:
        return ""
    columns = ["workload", "records", "candidate", "seconds", "all rounds", "CPU s"]
    columns += ["mean error", "error of ignoring all"]
    rows = [_row(columns), _row(["---"] * len(columns))]
    for (state, *_), one in first.items():
        least = min(o["seconds_median"] for o in first.values() if _case(o) == _case(one))
        every = f"{_number(sum(one['seconds_all']))} in {len(one['seconds_all'])}"
        errors = [_number(one[name]) for name in ("error", "error_stale")]
        what = f"{one['workload']}, {state:,} keys"
        cells = [what, f"{one['increment_records']:,}", _name(one), _cell(one, least), every]
        rows.append(_row([*cells, _number(one["cpu_seconds"]), *errors]))
    return "\n".join(rows)


def _won(results: Iterable[Result]) -> str:
    """Return where a peer is faster than the best row of `cbp` without the service."""
    cases: dict[tuple[Any, ...], list[Result]] = {}
    for one in _first(results).values():
        cases.setdefault(_case(one), []).append(one)
    said = []
    for (workload, _, size), measured in cases.items():
        ours = min(
            (o["seconds_median"] for o in measured if o["candidate"] in _OF_OURS), default=0.0
        )
        peer = min(measured, key=lambda one: float(one["seconds_median"]))
        if peer["candidate"] not in _OF_OURS:
            ratio = ours / peer["seconds_median"]
            said.append(f"{workload}, {size:,} records: {_name(peer)}, {ratio:.2g} x")
    return f"Where a peer is faster than our best row: {'; '.join(said)}." if said else ""


def _first(results: Iterable[Result]) -> dict[tuple[Any, ...], Result]:
    """Return (state, size, workload, candidate, form) to the first result that has it."""
    results_by_case: dict[tuple[Any, ...], Result] = {}
    for one in results:
        case = one["state_keys"], one["increment_records"], one["workload"]
        results_by_case.setdefault((*case, one["candidate"], one["form"]), one)
    return results_by_case


def _case(one: Result) -> tuple[Any, ...]:
    return one["workload"], one["state_keys"], one["increment_records"]


def _name(one: Result) -> str:
    shown = _NAMES.get(one["candidate"], f"`{one['candidate']}`")
    return shown.format(form=one["form"])


def _cell(one: Result, least: float) -> str:
    every = one["seconds_all"]
    median = f"{_number(one['seconds_median'])}{'*' if len(every) < ROUNDS else ''}"
    best = f"**{median}**" if one["seconds_median"] == least else median
    return f"{best} ({_number(min(every))} to {_number(max(every))})"


def _copies(by: Mapping[int, Result]) -> str:
    size = max(one["index_bytes"] or 0 for one in by.values())
    return f"{size / 1e6:,.0f} MB" if size else "none"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
