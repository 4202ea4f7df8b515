"""What the checks of author's code cost: interleaved rounds with and without, in one process.

    python -m tests.bench.author_checks --records 1000000 --groups 1000000,100000 --rounds 7

Times are of this process's processor. "Without" replaces each check by what does nothing; the
rounds alternate, and a figure is the median of the differences of neighbours.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel import author_call as call
from cbp.engine.kernel import groupwise as bucket
from cbp.engine.workers import shipping, task_worker
from cbp.model.author.code_fingerprint import fingerprint
from cbp.model.author.process_state import ProcessWatch
from cbp.model.author.translator_state import StateWatch
from tests.driver import Driver

LOADED = shipping, task_worker


class ReadsOnce(Translate):
    """Shows by its code that it reads each flow once."""

    urls = Input("url BIGINT", route_by="url")
    counts = State("url BIGINT, n BIGINT")
    totals = Output("url BIGINT, n BIGINT", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


class MayReadTwice(ReadsOnce):
    """Hands its flows on, so that their readers are watched."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = added_up(group)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


def added_up(group: Any) -> int:
    return sum(1 for _ in group.urls) + int(sum(row.n for row in group.counts))


def _unchecked_loop(flows: tuple[str, ...], states: tuple[str, ...], *_: Any) -> Any:
    """Compile the loop without its look at what `translate` returns."""

    def compiled(source: str, scope: dict[str, Any]) -> None:
        checks = ("refuse(", "given is")
        kept = [line for line in source.splitlines() if not any(c in line for c in checks)]
        exec("\n".join(kept), scope)

    with patch.object(call, "exec", compiled, create=True):
        return call.calling_loop.__wrapped__(flows, states, frozenset())


@contextmanager
def _unwatched() -> Iterator[None]:
    with (
        patch.object(StateWatch, "__init__", _no_watch),
        patch.object(StateWatch, "check", _nothing),
    ):
        yield


def _nothing(self: Any) -> None:
    """Check nothing."""


def _no_watch(self: Any, function: Any, **_: Any) -> None:
    self.function, self._owner = function, None


CHECKS: dict[str, Callable[[], Any]] = {
    "returned, read twice": lambda: patch.object(bucket, "calling_loop", _unchecked_loop),
    "state of another key": lambda: patch.object(
        bucket.GroupwiseRun, "_is_foreign", lambda *_: False
    ),
    "kept on the translator": _unwatched,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--groups", default="1000000,100000")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    measure_process()
    for class_ in (ReadsOnce, MayReadTwice):
        for groups in map(int, given.groups.split(",")):
            measure(class_(), given.records, groups, given.rounds)


def measure_process(rounds: int = 1_000) -> None:
    """Print what a task pays for the look at its process, with all modules of a worker loaded."""
    fingerprint(ReadsOnce)
    watch = ProcessWatch()
    watch.loaded()
    begun = time.process_time()
    for _ in range(rounds):
        watch.begin()
        watch.loaded()
        watch.ended()
    micros = (time.process_time() - begun) / rounds * 1e6
    print(
        f"the look at the process: {micros:.0f} us a task, {len(sys.modules)} modules", flush=True
    )
    assert not watch.is_changed


def measure(translator: Translate, records: int, groups: int, rounds: int) -> None:
    builder = DataflowBuilder("checks")
    builder.stage("one", translator, buckets=8, urls=builder.source("urls", "url BIGINT"))
    rows = [{"url": n % groups} for n in range(records)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        driver = Driver(LocalEngine(cache=f"{folder}/cache"), builder.build(), Path(folder) / "t")
        taken: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * rounds + 2):
            checked = number % 2 == 0
            with ExitStack() as stack:
                for check in CHECKS.values() if not checked else ():
                    stack.enter_context(check())
                driver.feed("urls", rows)
                gc.collect()
                begun = time.process_time()
                driver.run_until_idle()
                if number >= 2:
                    taken[checked].append(time.process_time() - begun)
    pairs = zip(taken[True], taken[False], strict=True)
    part = statistics.median((one - other) / other for one, other in pairs)
    least = min(taken[True]) / min(taken[False]) - 1
    print(
        f"{type(translator).__name__}, {groups} groups: {min(taken[False]):.2f} s without, "
        f"{min(taken[True]):.2f} s with; median {part:+.1%}, of the least {least:+.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
