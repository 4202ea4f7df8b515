"""What an author keeps on a translator after `__init__` is found and named, in kit and engine.

Every task calls a fresh instance of the author's class; what is kept on it, or on its class, is
found.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cbp import (
    Decision,
    Input,
    Output,
    RunAny,
    Translate,
    TranslateArrow,
    TranslateRecords,
    by,
    framed,
    route,
)
from cbp.errors import AuthorStateError
from cbp.model.author.translator_state import shape
from tests.cbp.sdk.mistakes import Run, failure

THIS = Path(__file__).name


class Keeps(Translate):
    """Calls `remember` for every group."""

    urls = Input("url STRING", route_by="url")
    totals = Output("url STRING, n BIGINT")
    kept: Any = None

    def translate(self, key: Any, group: Any, out: Any) -> None:
        self.remember(key.url)
        out.totals(url=key.url, n=1)

    def remember(self, url: str) -> None:
        """Keep nothing."""


class Adds(Keeps):
    def __init__(self) -> None:
        self.n = 0

    def remember(self, url: str) -> None:
        self.n += 1


class Sets(Keeps):
    def remember(self, url: str) -> None:
        self.latest = url


class Appends(Keeps):
    def __init__(self) -> None:
        self.cache: list[str] = []

    def remember(self, url: str) -> None:
        self.cache.append(url)


class Nests(Keeps):
    def __init__(self) -> None:
        self.by_url = {"a": {"seen": {1}}}

    def remember(self, url: str) -> None:
        self.by_url["a"]["seen"].add(2)


class Counts(Keeps):
    def __init__(self) -> None:
        self.counter: Counter[str] = Counter()

    def remember(self, url: str) -> None:
        self.counter[url] += 1


class OfClass(Keeps):
    seen: list[str] = []  # noqa: RUF012 - that is the mistake

    def remember(self, url: str) -> None:
        self.seen.append(url)


class NumberOfClass(Keeps):
    n = 0

    def remember(self, url: str) -> None:
        NumberOfClass.n += 1


class Slots(Keeps):
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def remember(self, url: str) -> None:
        self.n += 1


class Default(Keeps):
    def remember(self, url: str, seen: list[str] = []) -> None:  # noqa: B006 - that is the mistake
        seen.append(url)


class Helper:
    def __init__(self) -> None:
        self.total = 0

    def add(self) -> None:
        self.total += 1


class Helped(Keeps):
    def __init__(self) -> None:
        self.helper = Helper()

    def remember(self, url: str) -> None:
        self.helper.add()


class Draws(Keeps):
    def __init__(self) -> None:
        self.dice = random.Random(7)

    def remember(self, url: str) -> None:
        self.dice.random()


class Numbers(Keeps):
    def __init__(self) -> None:
        self.ids = itertools.count()

    def remember(self, url: str) -> None:
        next(self.ids)


class Removes(Keeps):
    def __init__(self) -> None:
        self.first = True

    def remember(self, url: str) -> None:
        self.__dict__.pop("first", None)


@pytest.mark.parametrize(
    ("class_", "attribute"),
    [
        (Adds, "self.n"),
        (Sets, "self.latest"),
        (Appends, "self.cache"),
        (Nests, "self.by_url"),
        (Counts, "self.counter"),
        (OfClass, "OfClass.seen"),
        (NumberOfClass, "NumberOfClass.n"),
        (Slots, "self.n"),
        (Default, "Default.remember"),
        (Helped, "self.helper"),
        (Draws, "self.dice"),
        (Numbers, "self.ids"),
        (Removes, "self.first"),
    ],
)
def test_what_is_kept_on_a_translator_is_found(
    run: Run, class_: type[Keeps], attribute: str
) -> None:
    """Each way of keeping something is an error that names the attribute and a line."""
    error = failure(run, class_())
    assert error.code == "author_state_changed"
    assert error.details["attribute"] == attribute
    assert error.details["function"] == f"{class_.__name__}.translate"
    file, line = re.match(r"(.*):(\d+)$", error.details["place"]).groups()  # type: ignore[union-attr]
    assert Path(file).name == THIS
    if class_ is not Removes:  # it names no attribute
        said = Path(file).read_text().splitlines()[int(line) - 1]
        assert attribute.rpartition(".")[2] in said


class SetsUp(Keeps):
    """Allowed: costly set-up once, and caches that change no answer."""

    def __init__(self) -> None:
        self.pattern = re.compile("a+")
        self.table = {"a": [1, 2], "b": float("nan")}
        self.helper = Helper()
        self.made = 0

    @functools.cached_property
    def model(self) -> list[int]:
        return [1, 2, 3]

    @staticmethod
    @functools.lru_cache
    def score(url: str) -> int:
        return len(url)

    def remember(self, url: str) -> None:
        assert [bool(one) for one in (self.pattern, self.table, self.model)] == [True] * 3
        assert self.score(url) == 1


def test_what_init_made_is_free_to_use(run: Run) -> None:
    """Compiled expressions, tables, cached properties and memoised functions are no change."""
    translator = SetsUp()
    run(translator)
    run(translator)
    assert "model" not in vars(translator)


def test_a_try_that_failed_leaves_nothing(run: Run) -> None:
    """The second try of a run finds the same again: the instance that was declared is untouched."""
    translator = Appends()
    failure(run, translator)
    assert translator.cache == []
    assert failure(run, translator).code == "author_state_changed"


class Records(TranslateRecords):
    urls = Input("url STRING")
    totals = Output("url STRING, n BIGINT")
    n = 0

    def translate(self, record: Any, out: Any) -> None:
        self.n += 1
        out.totals(url=record.url, n=self.n)


class Arrow(TranslateArrow):
    urls = Input("url STRING", route_by="url")
    links = Output("url STRING")
    n = 0

    def translate(self, groups: Any, out: Any) -> None:
        self.n += 1
        out.links(groups.keys)


class Decides(Keeps):
    n = 0

    def runnable(self, connectors: Any, memo: Any) -> Decision:
        self.n += 1
        return RunAny()(connectors, memo)


class Frames(Keeps):
    n = 0

    def __init__(self) -> None:
        self.urls = Input("url STRING", route_by="url", frame_by=framed(self.frame))

    def frame(self, record: Any) -> int:
        self.n += 1
        return self.n


class Routes(Keeps):
    key = "k STRING"
    n = 0

    def __init__(self) -> None:
        self.urls = Input("url STRING", route_by=by(self.key_of, "STRING"))

    def key_of(self, record: Any) -> str:
        self.n += 1
        return str(self.n)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.totals(*key, 1)


class RoutesToMany(Routes):
    def __init__(self) -> None:
        self.urls = Input("url STRING", route_by=route(self.key_of, "STRING"))


class Orders(Routes):
    key = "url STRING"

    def __init__(self) -> None:
        self.urls = Input("url STRING", route_by="url", order_by=by(self.key_of, "STRING"))


class Combines(Routes):
    def __init__(self) -> None:
        of_one = by(lambda record: "one", "STRING")
        self.urls = Input("url STRING", route_by=of_one, combine=self.last)

    def last(self, records: list[Any]) -> list[Any]:
        self.n += 1
        return records[-1:]


@pytest.mark.parametrize(
    "class_", [Records, Arrow, Decides, Frames, Routes, RoutesToMany, Orders, Combines]
)
def test_every_function_of_an_author_is_watched(run: Run, class_: type[Any]) -> None:
    """All forms, Runnables, FrameBy, route and order functions and combiners alike."""
    with pytest.raises(AuthorStateError) as caught:
        run(class_())
    assert caught.value.details["attribute"] == "self.n"


class OnOut(Keeps):
    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.n = getattr(out, "n", 0) + 1
        out.totals(url=key.url, n=out.n)


class OnOutOfTables(Arrow):
    def translate(self, groups: Any, out: Any) -> None:
        out.n = 1


@pytest.mark.parametrize("class_", [OnOut, OnOutOfTables])
def test_nothing_is_kept_on_out(run: Run, class_: type[Any]) -> None:
    """`out` is one object for many groups, in the engine only: to set something is refused."""
    error = failure(run, class_())
    assert error.code == "author_state_changed"
    line = int(error.details["place"].rpartition(":")[2])
    assert "out.n = " in Path(__file__).read_text().splitlines()[line - 1]


class OnGroup(Keeps):
    def translate(self, key: Any, group: Any, out: Any) -> None:
        group.n = 1


class Holder:
    part: Any = None


class Meets:
    """Its outline waits until another thread has outlined the same object."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def tobytes(self) -> bytes:
        if not self.begun.is_set():
            self.begun.set()
            assert self.ended.wait(60)
        return b""


def test_an_object_is_outlined_by_several_threads_alike() -> None:
    """Stages share the objects of their classes, and their calls run in threads."""
    Meets.__module__ = "numpy"
    holder, meets = Holder(), Meets()
    holder.part = meets
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(shape, holder, [100])
        assert meets.begun.wait(60)
        mine = shape(holder, [100])
        meets.ended.set()
        assert other.result(60) == mine


def test_nothing_is_kept_on_a_group(run: Run) -> None:
    """A group has its flows and nothing else, in the kit as in the engine."""
    assert failure(run, OnGroup()).code == "author_code_failed"
