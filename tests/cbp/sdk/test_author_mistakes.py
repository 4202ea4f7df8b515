"""What an author easily does wrong, and what is said of it: in the kit and in the engine alike.

Returned records, `sys.exit` or state of another key are a coded error with the line. A flow of a
group that is read behind its end is an error; only code that may do so pays for the check
(`cbp/model/author/read_once.py`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateArrow, TranslateRecords
from cbp.engine.direct import LocalEngine
from cbp.errors import AuthorCodeError, DataflowInvalidError, DefinitionError
from cbp.testing import run_dataflow, run_epochs
from tests.cbp.sdk.mistakes import Run, failure, one_stage
from tests.driver import Driver

THIS = Path(__file__).name


def groupwise(function: Callable[[Any, Any, Any], Any], **more: Any) -> Translate:
    class Made(Translate):
        urls = Input("url STRING", route_by="url")
        totals = Output("url STRING, n BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> Any:
            return function(key, group, out)

    for name, value in more.items():
        setattr(Made, name, value)
    return Made()


@pytest.mark.parametrize(
    "leave",
    [
        lambda *_: sys.exit(3),
        lambda *_: (_ for _ in ()).throw(GeneratorExit()),
        lambda key, *_: recurse(key),
    ],
)
def test_whatever_ends_a_call_is_the_authors_error(run: Run, leave: Any) -> None:
    """`sys.exit`, GeneratorExit and endless recursion are reported with the author's line."""
    error = failure(run, groupwise(leave))
    assert error.code == "author_code_failed"
    assert error.details["function"] == "Made.translate"
    assert THIS in error.details["place"]
    assert error.message.index(THIS) < 100


def recurse(key: Any) -> Any:
    return recurse(key)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise: a process that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class WithoutText(Exception):
    """An exception whose text raises, as that of a library can that formats its arguments."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised

    __repr__ = __str__


@pytest.mark.parametrize("raised", [ValueError("text"), SystemExit(3), RecursionError()])
def test_an_exception_whose_text_raises_is_told_with_its_line(
    run: Run, raised: BaseException
) -> None:
    """It is the author's error as any other: with its stage, function, line and type."""
    error = failure(run, groupwise(lambda *_: throw(WithoutText(raised))))
    assert error.code == "author_code_failed"
    assert error.details["stage"] == "one"
    assert THIS in error.details["place"]
    kind = type(raised).__name__
    assert f"WithoutText: <no text: showing WithoutText raised {kind}>" in error.details["cause"]


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda out: out.totals(url="a", n=WithoutText(ValueError())), "author_code_failed"),
        (lambda out: WithoutText(ValueError()), "records_returned"),
    ],
)
def test_a_value_whose_text_raises_is_told_with_its_type(run: Run, act: Any, code: str) -> None:
    """Whether it is emitted or returned: the error is about the value, not about its text."""
    error = failure(run, groupwise(lambda key, group, out: act(out)))
    assert error.code == code
    assert "<no text: showing WithoutText raised ValueError>" in error.details["cause"]


def throw(error: BaseException) -> Any:
    raise error


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_outside_is_no_authors_error() -> None:
    """Only a statement makes a KeyboardInterrupt the author's: one from a terminal goes through."""

    def interrupted(key: Any, group: Any, out: Any) -> None:
        out.totals(url=key.url, n=Interrupts())

    with pytest.raises(KeyboardInterrupt):
        run_epochs(groupwise(interrupted), [["a"]])

    def raises(key: Any, group: Any, out: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(AuthorCodeError):
        run_epochs(groupwise(raises), [["a"]])


def test_an_interrupt_by_a_handler_in_python_is_no_authors_error() -> None:
    """Spark's driver has such a handler: it raises by a statement, for a signal from outside."""

    def interrupted(key: Any, group: Any, out: Any) -> None:
        out.totals(url=key.url, n=Interrupts())

    def handler(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_epochs(groupwise(interrupted), [["a"]])
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupts:
    """Raises as a signal does: out of C, between two statements."""

    def __index__(self) -> int:
        signal.raise_signal(signal.SIGINT)
        return 1


@pytest.mark.parametrize("given", [[("a", 1)], 0, ""])
def test_what_is_returned_is_refused(run: Run, given: object) -> None:
    """A record that is returned instead of emitted would be lost; an empty one is refused too."""
    error = failure(run, groupwise(lambda *_: given))
    assert error.code == "records_returned"
    assert "out.<output>" in error.message


def test_every_form_refuses_what_is_returned(run: Run) -> None:
    """Records and Arrow tables are emitted, too."""

    class Records(TranslateRecords):
        urls = Input("url STRING")
        links = Output("url STRING")

        def translate(self, record: Any, out: Any) -> Any:
            return record

    class Arrow(TranslateArrow):
        urls = Input("url STRING", route_by="url")
        links = Output("url STRING")

        def translate(self, groups: Any, out: Any) -> Any:
            return groups.keys

    assert failure(run, Records()).code == "records_returned"
    assert failure(run, Arrow()).code == "records_returned"


def test_a_generator_is_refused_as_it_is_declared() -> None:
    """Such a function would never begin."""

    class Yields(Translate):
        urls = Input("url STRING", route_by="url")
        links = Output("url STRING")

        def translate(self, key: Any, group: Any, out: Any) -> Iterator[Any]:  # type: ignore[override]
            yield key

    with pytest.raises(DefinitionError) as caught:
        Yields().spec()
    assert caught.value.mistake.code == "translate_kind"


def test_a_misspelt_name_is_told_with_those_there_are(run: Run) -> None:
    """Columns of a record or a key, flows of a group, and outputs."""
    asked: dict[str, tuple[Callable[..., Any], str]] = {
        "column": (lambda key, group, out: [row.link for row in group.urls], "use one of url"),
        "sign": (lambda key, group, out: [row.sign for row in group.urls], "declare `sign INT`"),
        "key": (lambda key, group, out: key.link, "use one of url"),
        "flow": (lambda key, group, out: group.url, "use one of urls"),
        "output": (lambda key, group, out: out.total(url="a", n=1), "use one of totals"),
        "keyword": (lambda key, group, out: out.totals(url="a", m=1), "m"),
        "missing": (lambda key, group, out: out.totals(url="a"), "n"),
    }
    for function, says in asked.values():
        error = failure(run, groupwise(function))
        assert error.code == "author_code_failed"
        assert says in error.details["cause"]


def test_a_value_that_does_not_fit_says_why(run: Run) -> None:
    """Type, value and reason: out of range, no integer, no zone."""
    import datetime

    too_large = failure(run, groupwise(lambda k, g, out: out.totals(url="a", n=2**63)))
    assert "BIGINT, got 9223372036854775808 (int): expected a value from" in too_large.message
    flag = failure(run, groupwise(lambda k, g, out: out.totals(url="a", n=True)))
    assert "expected an integer" in flag.message
    naive = datetime.datetime(2026, 1, 2)  # noqa: DTZ001 - that is the mistake
    at = Output("at TIMESTAMP")
    timed = groupwise(lambda k, g, out: out.times(at=naive), times=at)
    assert "without a zone" in failure(run, timed).message


class Colour(str, Enum):  # noqa: UP042 - the older way, whose text is a name
    RED = "red"


def test_a_text_of_a_subclass_is_its_text() -> None:
    """`str()` of a member of an Enum is its name: what is kept is the value."""
    emits = groupwise(lambda k, g, out: out.totals(url=Colour.RED, n=1))
    assert [tuple(r) for r in run_epochs(emits, [["a"]]).outputs["totals"][0]] == [("red", 1)]


class Plain(Translate):
    urls = Input("url STRING", route_by="url")
    links = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


class Hides(Plain):
    spec = Input("url STRING", route_by="url")  # type: ignore[assignment]


def test_what_is_no_stage_is_a_mistake_with_a_rule() -> None:
    """A class, a number, an input named `spec`, and wires to no flow are refused at once."""
    builder = DataflowBuilder("flow")
    source = builder.source("s", "url STRING")
    builder.stage("a_class", Plain, urls=source)  # type: ignore[arg-type]
    builder.stage("a_number", 5, urls=source)  # type: ignore[arg-type]
    builder.stage("hides", Hides(), spec=source, urls=source)
    right = builder.stage("right", Plain(), urls=source)
    builder.stage("wired", Plain(), urls=right)  # type: ignore[arg-type]
    builder.stage("to_number", Plain(), urls=3)  # type: ignore[arg-type]
    with pytest.raises(DataflowInvalidError) as caught:
        builder.build()
    codes = [mistake.code for mistake in caught.value.mistakes]
    assert sorted(codes) == [
        "name_invalid",
        "translator_invalid",
        "translator_invalid",
        "wiring_invalid",
        "wiring_invalid",
    ]


def test_an_input_may_be_named_like_a_parameter_of_stage() -> None:
    """`name`, `translator`, `buckets` and `fuse` are good names of inputs."""

    class Many(Translate):
        name = Input("url STRING", route_by="url")
        translator = Input("url STRING", route_by="url")
        buckets = Input("url STRING", route_by="url")
        fuse = Input("url STRING", route_by="url")
        seen = State("url STRING")
        links = Output("url STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    builder = DataflowBuilder("flow")
    s = builder.source("s", "url STRING")
    builder.stage("many", Many(), name=s, translator=s, buckets=s, fuse=s)
    wiring = builder.build().stages["many"].wiring
    assert dict(wiring) == dict.fromkeys(("name", "translator", "buckets", "fuse"), "s")


class Writes(Translate):
    """Keeps a record, and appends one to the state of another key."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING, n BIGINT")
    links = Output("url STRING")

    def __init__(self, *, remote: bool) -> None:
        self.remote = remote

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.seen(key.url, 1)
        if self.remote:
            out.seen.remote(url="z", n=2)
        else:
            out.seen(url="z", n=2)  # this line


def test_state_of_another_key_is_written_by_remote_only(run: Run) -> None:
    """Local state of another key is most often a mistake; the error names the line and the fix."""
    error = failure(run, Writes(remote=False))
    assert error.code == "state_key_foreign"
    assert "out.seen.remote(" in error.details["cause"]
    line = int(error.details["place"].rpartition(":")[2])
    assert "# this line" in Path(__file__).read_text().splitlines()[line - 1]
    run(Writes(remote=True))


def test_a_remote_record_is_kept_also_for_the_groups_own_key() -> None:
    """`remote` appends to whatever key it names; to the own key as well."""

    class Own(Writes):
        def translate(self, key: Any, group: Any, out: Any) -> None:
            for row in group.seen:
                out.seen(*row)
            out.seen.remote(key.url, 1)
            out.seen.remote("b", 2)

    result = run_epochs(Own(remote=True), [["a"], ["a", "b"]])
    assert sorted(map(tuple, result.state["seen"])) == [
        ("a", 1),
        ("a", 1),
        ("b", 1),
        ("b", 2),
        ("b", 2),
        ("b", 2),
    ]


def test_tables_hold_state_of_called_keys_only(run: Run) -> None:
    """A vectorised translator has no remote writes: another key is the same error."""

    class Arrow(TranslateArrow):
        urls = Input("url STRING", route_by="url")
        seen = State("url STRING")

        def translate(self, groups: Any, out: Any) -> None:
            out.seen({"url": ["z"]})

    assert failure(run, Arrow()).code == "state_key_foreign"


def read_again(key: Any, group: Any, out: Any) -> None:
    n = sum(1 for _ in group.urls)
    out.totals(url=key.url, n=n + sum(1 for _ in group.urls))


def read_by_a_variable(key: Any, group: Any, out: Any) -> None:
    urls = group.urls
    out.totals(url=key.url, n=len(list(urls)) + len(list(urls)))


def read_in_a_loop(key: Any, group: Any, out: Any) -> None:
    for n in range(2):
        out.totals(url=key.url, n=n + len(list(group.urls)))


def read_by_a_helper(key: Any, group: Any, out: Any) -> None:
    out.totals(url=key.url, n=read_both(group.urls))


def read_both(urls: Any) -> int:
    return len([*urls]) + len([*urls])


class ReadsAgain(Translate):
    """Its own `translate`, not one that calls a function with the group."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING")
    totals = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for _ in group.seen:
            """Nothing."""
        for _ in group.urls:
            for _ in group.seen:
                out.seen(url=key.url)  # the second time


@pytest.mark.parametrize(
    "translator",
    [
        *map(groupwise, (read_again, read_by_a_variable, read_in_a_loop, read_by_a_helper)),
        ReadsAgain(),
    ],
)
def test_a_flow_that_is_read_twice_is_an_error(run: Run, translator: Translate) -> None:
    """The second loop would find nothing: the flow is named, and how to keep its records."""
    error = failure(run, translator)
    assert error.code == "input_read_twice"
    assert "list(group." in error.message
    assert THIS in error.details["place"]


class ReadsOn(Translate):
    """Reads flows in parts, which is no second reading."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING")
    totals = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows = iter(group.urls)
        first = next(rows)
        others = list(rows)
        while next(group.seen, None) is not None:
            """Go on."""
        for row in group.seen:
            out.seen(url=row.url)
        out.totals(url=first.url, n=1 + len(others))


def test_a_flow_may_be_read_in_parts(run: Run) -> None:
    """`next`, then a loop over the rest, is one reading."""
    run(ReadsOn())


class Peeks(Translate):
    """Asks an iterator for its first record, and then for all others, as CountInLinks does."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        seen, urls = iter(group.seen), iter(group.urls)
        first = next(seen, None)
        n = (first.n if first else 0) + sum(row.n for row in seen) + len(list(urls))
        assert next(urls, None) is None
        out.seen(url=key.url, n=n)
        out.totals(url=key.url, n=n)


def test_an_iterator_of_an_empty_flow_may_be_asked_again(tmp_path: Path) -> None:
    """It ends as often as it is asked, in the kit and the engine; nothing is lost."""
    actual = run_dataflow(one_stage(Peeks()), {"urls": [["a"], ["a"]]}).outputs["one.totals"]
    assert [[tuple(row) for row in epoch] for epoch in actual] == [[("a", 1)], [("a", 2)]]
    driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), one_stage(Peeks()), tmp_path)
    for _ in range(2):
        driver.feed("urls", [{"url": "a"}])
        driver.run_until_idle()
    records = driver.engine.increments.read(
        driver.folder, driver.increments["one.totals"], offset=0, limit=9
    )
    assert [record["n"] for record in records] == [1, 2]


def test_code_that_reads_once_costs_nothing() -> None:
    """Only where a flow may be read twice its records are watched."""
    from cbp.model.author.read_once import read_freely
    from stages.translators.url_count import UrlCount

    assert read_freely(UrlCount().translate, ("urls", "counts")) == frozenset()
    assert read_freely(ReadsAgain().translate, ("urls", "seen")) == {"seen"}
    assert read_freely(ReadsOn().translate, ("urls", "seen")) == {"urls", "seen"}


class GoesOn(Translate):
    """Emits a list, and goes on with it."""

    urls = Input("url STRING", route_by="url")
    totals = Output("url STRING, seen ARRAY<STRING>")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        seen: list[str] = []
        for n in "12":
            seen.append(n)
            out.totals(url=key.url, seen=seen)


def test_a_list_is_emitted_as_it_is_then(tmp_path: Path) -> None:
    """What becomes of a list behind its emission changes no record, in the kit and the engine."""
    expected = [["1"], ["1", "2"]]
    actual = run_dataflow(one_stage(GoesOn()), {"urls": [["a"]]}).outputs["one.totals"]
    assert [row.seen for row in actual[0]] == expected
    driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), one_stage(GoesOn()), tmp_path)
    driver.feed("urls", [{"url": "a"}])
    driver.run_until_idle()
    records = driver.engine.increments.read(
        driver.folder, driver.increments["one.totals"], offset=0, limit=9
    )
    assert [record["seen"] for record in records] == expected
