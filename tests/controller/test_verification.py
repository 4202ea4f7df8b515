"""Verification: what differs is found and told, and runs are left alone."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, StaticTable, Translate
from cbp.engine.direct import LocalEngine
from cbp.engine.faults import NO_FAULTS
from cbp.errors import ChangeRefusedError, LeaseLostError, NotFoundError
from cbp.model.change import Choice
from cbp.model.correction import Correction
from cbp.model.verification import Request, Verification
from controller.loop import recomputation
from controller.loop.threads import Threads
from controller.loop.unverifiable import VerificationBusyError
from stages.translators.clustering_coefficients import ClusteringCoefficients
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.pagerank_verdict import PageRankVerdict
from stages.translators.set_diff import SetDiff
from tests.controller.world import (
    DIAMOND,
    FUSED,
    ONE,
    SCHEMA,
    Deferred,
    Inline,
    Sum,
    World,
    only_stage,
)

WAYS = [
    Request(),
    Request(split="at_once"),
    Request(engine="reference"),
    Request(split="at_once", engine="reference"),
]


class Wavering(Sum):
    """Adds what is asked for to every sum of `a`, once or ever more."""

    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")
    steps: Iterator[int] = itertools.repeat(0)
    asked: Any = None

    def translate(self, key: Any, group: Any, out: Any) -> None:
        if Wavering.asked is not None:
            Wavering.asked()
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        n += next(Wavering.steps) if key.word == "a" else 0
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Framed(Sum):
    """Sums frames of one number."""

    items = Input(SCHEMA, route_by="word", frame_by="n")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Told(Framed):
    """The same, of increments as they come."""

    items = Input(SCHEMA, route_by="word")


class Priced(Translate):
    """Multiplies with a table."""

    runnable = StaticTable(("prices",))
    items = Input(SCHEMA, route_by="word")
    prices = Input(SCHEMA, route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        price = sum(r.n for r in group.prices)
        n = price * sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    yield
    Wavering.steps, Wavering.asked = itertools.repeat(0), None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, verifier=Inline())
    made.translators |= {"wavering": Wavering, "set_diff": SetDiff, "framed": Framed}
    made.translators |= {"told": Told, "priced": Priced}
    made.restart()
    yield made
    made.close()


def verified(world: World, name: str, request: Request | None = None) -> Verification:
    begun = world.controller.verifications.start(name, request or Request())
    return world.controller.verifications.show(begun.id)


def fed(world: World, document: dict[str, Any], rounds: int = 4) -> World:
    world.controller.register(document)
    for number in range(rounds):
        for source in document["sources"]:
            world.arrive(document["name"], source, ("a", number), ("b", 1), ("c" * number, 2))
        world.clock.advance(1)
        world.ticks()
    return world


def wavering(world: World) -> World:
    stage = {**ONE["stages"]["sum"], "translator": "wavering", "buckets": 2}
    return fed(world, {**ONE, "stages": {"sum": stage}})


@pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")
@pytest.mark.parametrize("document", [DIAMOND, FUSED], ids=["diamond", "fused"])
def test_what_ran_equals_its_recomputation(world: World, document: Any, request_: Request):
    """Every table is compared, as it arrived and at once, with either engine."""
    fed(world, document)
    found = verified(world, document["name"], request_)
    assert (found.status, found.error) == ("equal", None)
    assert found.tables
    left = {v.table for v in found.tables if v.status != "equal"}
    assert left <= ({"flows/again.capitals"} if request_.split == "at_once" else set())
    assert all(v.records for v in found.tables if v.status == "equal")
    assert found.epochs is not None
    assert set(found.epochs.values()) == {3}


@pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")
def test_a_difference_is_told_with_its_group(world: World, request_: Request):
    """As after a change of the code: the first keys, what is expected, what the table has."""
    wavering(world)
    Wavering.steps = itertools.repeat(1)
    found = verified(world, "one", request_)
    assert (found.status, found.suspect) == ("differs", "sum")
    state = next(v for v in found.tables if v.table == "state/sum.sums")
    added = 4 if request_.split == "increments" else 1
    (one,) = state.differing
    assert (one.key, one.found) == ("'a'", ("'a', 6",))
    assert one.expected == (f"'a', {6 + added}",)


@pytest.mark.parametrize("request_", WAYS[::2], ids=["direct", "reference"])
def test_a_translator_that_wavers_is_told_from_tables_that_are_wrong(
    world: World, request_: Request
):
    """Two recomputations of one input differ."""
    wavering(world)
    Wavering.steps = itertools.count()
    found = verified(world, "one", request_)
    assert (found.status, found.suspect) == ("not_deterministic", "sum")


def test_one_that_wavers_only_sometimes_is_found_by_asking_twice(world: World):
    """The tables agree with the first recomputation, the second one differs."""
    wavering(world)
    once = [*itertools.repeat(0, 4), *itertools.repeat(5, 4)]
    Wavering.steps = iter(once)
    assert verified(world, "one", Request(twice=True)).status == "not_deterministic"
    Wavering.steps = iter(once)
    assert verified(world, "one").status == "equal"


def test_runs_under_way_do_not_matter_where_time_does_not(tmp_path: Path):
    """With input queued and a run under way, the last whole epochs are compared."""
    world = World(tmp_path, engine=LocalEngine, executor=Deferred(), verifier=Inline())
    world.controller.register(DIAMOND)
    seen = []
    for number in range(5):
        world.arrive("diamond", "a", ("a", number))
        world.arrive("diamond", "b", ("a", 1), ("b", number))
        world.clock.advance(1)
        world.controller.tick()
        world.executor.run_next()  # type: ignore[attr-defined]
        before = world.store.position("diamond")
        found = verified(world, "diamond")
        assert (found.status, found.error) == ("equal", None)
        assert world.store.position("diamond") == before
        seen.append(tuple((found.epochs or {}).values()))
    assert len(set(seen)) > 2
    world.close()


def test_a_dataflow_whose_epochs_depend_on_time_is_compared_at_rest(world: World):
    """While something is left to do: an error that says what, once the time is up."""
    stage = {**ONE["stages"]["sum"], "runnable": "run_any"}
    fed(world, {**ONE, "stages": {"sum": stage}})
    assert verified(world, "one").status == "equal"
    world.controller.pause("one")
    world.arrive("one", "a", ("a", 1))
    found = verified(world, "one", Request(seconds_max=0.01))
    assert found.error is not None
    assert (found.status, found.error["error_code"]) == ("failed", "dataflow_unsettled")


def test_frames_and_histories_come_again(world: World):
    """Epoch by epoch, with the frames that punctuations closed."""
    document = {
        "name": "diff",
        "sources": {s: {"schema": "url STRING, time TIMESTAMP"} for s in "ab"},
        "stages": {"diff": {"translator": "set_diff", "inputs": {"a": "a", "b": "b"}}},
    }
    world.controller.register(document)
    for hour in range(3):
        for source, url in (("a", "x"), ("b", f"y{hour}")):
            when = world.clock().replace(hour=hour)
            records: list[Any] = [(url, when), (f"{source}{hour}", when)]
            world.arrive("diff", source, *records)
        world.clock.advance(1)
        world.ticks()
    for way in (Request(), Request(engine="reference")):
        found = verified(world, "diff", way)
        assert (found.status, found.error) == ("equal", None)
        kinds = {v.table: (v.kind, v.status) for v in found.tables}
        assert kinds["flows/diff.a_diff"] == ("history", "equal")
        assert sum(v.records for v in found.tables if v.kind == "history") > 0


FRAMED: dict[str, Any] = {
    "name": "framed",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "keys": {"translator": "framed", "inputs": {"items": "a"}, "buckets": 2},
        "again": {"translator": "framed", "inputs": {"items": "keys.totals"}, "buckets": 2},
    },
}


def closed(world: World, flow: str, document: dict[str, Any] = FRAMED) -> World:
    """Frames that only a close of this flow ends, in the middle and at the end."""
    world.controller.register(document)
    for _ in range(2):
        for number in (1, 2, 2):
            world.arrive("framed", "a", ("a", number), ("b", number))
            world.ticks()
        world.controller.close("framed", flow)
        world.ticks()
    return world


@pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")
def test_a_close_of_a_source_stands_where_it_stood(world: World, request_: Request):
    """In the middle and behind the last increment, also when increments are put together."""
    found = verified(closed(world, "a"), "framed", request_)
    assert (found.status, found.error) == ("equal", None)
    assert len(world.store.punctuations("framed").items) == 2
    assert world.store.next_index("framed", "keys.totals") == 4


@pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")
def test_a_close_of_a_stage_s_flow_stands_where_it_stood_or_is_refused(
    world: World, request_: Request
):
    """All at once that flow has other increments; nothing is said then."""
    found = verified(closed(world, "keys.totals"), "framed", request_)
    if request_.split == "increments":
        assert (found.status, found.error) == ("equal", None)
        assert world.store.next_index("framed", "again.totals") > 1
    else:
        assert found.error is not None
        assert (found.status, found.error["error_code"]) == ("failed", "punctuation_unplaced")
        assert {v.status for v in found.tables} <= {"open", "left_out"}


def test_time_that_is_up_ends_it_and_tells_how_far_it_came(world: World):
    """At the next run; nothing is said of tables that were not compared."""
    wavering(world)

    def wait() -> None:
        (job,) = world.controller.verifications._jobs.values()
        assert job.stop.wait(20)

    Wavering.asked = wait
    found = verified(world, "one", Request(seconds_max=0.05))
    assert found.status == "timed_out"
    assert {v.status for v in found.tables} == {"open"}
    assert found.total == 4
    assert found.done < 4


def test_one_at_a_time_and_it_can_be_cancelled(tmp_path: Path):
    """A second one is refused by the first one's name, until that has ended."""
    verifier = Deferred()
    world = World(tmp_path, engine=LocalEngine, verifier=verifier)
    fed(world, ONE)
    first = world.controller.verifications.start("one", Request())
    with pytest.raises(VerificationBusyError) as busy:
        world.controller.verifications.start("one", Request())
    assert busy.value.details["verification"] == first.id
    world.controller.verifications.cancel(first.id)
    verifier.run_next()
    assert world.controller.verifications.show(first.id).status == "cancelled"
    second = world.controller.verifications.start("one", Request())
    verifier.run_next()
    assert [v.id for v in world.controller.verifications.all("one")] == [second.id, first.id]
    assert world.controller.verifications.show(second.id).status == "equal"
    for call in (world.controller.verifications.show, world.controller.verifications.cancel):
        with pytest.raises(NotFoundError):
            call("nobody")
    world.close()


def test_input_that_is_gone_is_named(world: World):
    """Source and increment, instead of a comparison with less."""
    fed(world, ONE)
    files = sorted((Path(world.store.dataflow("one").folder) / "sources/a").glob("*.parquet"))
    files[2].unlink()
    found = verified(world, "one")
    assert found.error is not None
    assert (found.status, found.error["error_code"]) == ("failed", "input_not_retained")
    assert found.error["details"] == {"dataflow": "one", "source": "a", "index": 2}


def test_the_reference_engine_takes_small_inputs_only(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """It holds everything in memory: refused before it does."""
    fed(world, ONE)
    monkeypatch.setattr(recomputation, "REFERENCE_RECORDS_MAX", 5)
    found = verified(world, "one", Request(engine="reference"))
    assert found.error is not None
    assert (found.status, found.error["error_code"]) == ("failed", "verification_too_large")


def test_what_it_wrote_goes_and_nothing_else_is_touched(world: World):
    """The scratch folder at its end, or at the next start; runs go on as before."""
    fed(world, DIAMOND)
    before = sorted(p for p in Path(world.tables).rglob("*") if p.is_file())
    verified(world, "diamond")
    assert sorted(p for p in Path(world.tables).rglob("*") if p.is_file()) == before
    left = Path(world.tables) / ".scratch-v1" / "1"
    left.mkdir(parents=True)
    world.restart()
    world.controller.recover()
    assert not left.parent.exists()
    world.arrive("diamond", "a", ("a", 1))
    world.arrive("diamond", "b", ("a", 1))
    world.ticks()
    assert {s.epoch for s in world.store.stages("diamond")} == {5}


@pytest.mark.timeout(60)
def test_what_hangs_is_left_alone(tmp_path: Path):
    """A translator that does not return holds neither its verdict nor the next verification."""
    let_go, hangs = threading.Event(), threading.Event()
    world = World(tmp_path, engine=LocalEngine, verifier=Threads("verify"))
    world.translators["wavering"] = Wavering
    world.restart()
    wavering(world)
    verifications = world.controller.verifications
    verifications._give_up_seconds = 0.05

    def hang() -> None:
        hangs.set()
        let_go.wait()

    Wavering.asked = hang
    begun = verifications.start("one", Request())
    assert hangs.wait(30)
    verifications.cancel(begun.id)
    hung = ended(world, begun.id)
    assert (hung.status, hung.step.rpartition("; ")[2]) == (
        "cancelled",
        "did not end when it was asked to",
    )
    let_go.set()
    Wavering.asked = None
    again = ended(world, verifications.start("one", Request()).id)
    assert again.status == "equal"
    assert verifications.show(begun.id).status == "cancelled"
    world.close()


def ended(world: World, id_: str) -> Verification:
    deadline = time.monotonic() + 30
    while not (found := world.controller.verifications.show(id_)).ended:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_one_that_may_not_clean_up_ends_all_the_same(world: World):
    """Whoever leads by now removes what it left."""
    fed(world, ONE)

    def deposed(point: str) -> None:
        if point == "clean_up.before":
            raise LeaseLostError(1, "another one leads")

    world.faults.to = deposed
    assert verified(world, "one").status == "equal"
    world.faults.to = NO_FAULTS
    assert any(p.name.startswith(".scratch-") for p in Path(world.tables).iterdir())
    assert verified(world, "one").status == "equal"


def test_a_table_file_that_is_collected_meanwhile_is_named(world: World):
    """No comparison with less."""
    fed(world, ONE)
    for file in (Path(world.store.dataflow("one").folder) / "flows/sum.totals").rglob("*.parquet"):
        file.unlink()
    found = verified(world, "one")
    assert found.error is not None
    assert (found.status, found.error["error_code"]) == ("failed", "not_found")


@pytest.mark.parametrize("rebuild", [True, False], ids=["rebuilt", "added"])
def test_what_an_earlier_version_wrote_is_left_out(world: World, rebuild: bool):
    """With its reason, and all behind it; what was always the same is compared, epoch by epoch."""

    def document(**stages: Any) -> dict[str, Any]:
        given = {name: {"translator": "sum", "inputs": {"items": f}} for name, f in stages.items()}
        return {**ONE, "stages": given}

    fed(world, document(old="a", other="a"))
    choice = Choice(rebuild=frozenset({"other"})) if rebuild else Choice()
    world.controller.change(
        document(old="a", other="a", new="a", after="other.totals"), choice=choice
    )
    world.arrive("one", "a", ("a", 7), ("d", 7))
    world.ticks()
    wanted = {"state/old.sums", "flows/old.totals"}
    if not rebuild:
        wanted |= {"state/other.sums", "flows/other.totals"}
    for request in WAYS:
        found = verified(world, "one", request)
        assert (found.status, found.error) == ("equal", None)
        assert {v.table for v in found.tables if v.status == "equal"} == wanted
        left = {v.table: v.because for v in found.tables if v.status == "left_out"}
        assert len(left) == 8 - len(wanted)
        assert all("earlier version" in because for because in left.values())


@pytest.mark.parametrize("drop_later", [False, True], ids=["again", "dropped"])
def test_what_was_rolled_back_is_compared_without_what_was_dropped(world: World, drop_later: bool):
    """Rolled back in the middle, and on from there: epochs come again, or others do."""
    fed(world, ONE)
    world.controller.amendments.roll_back("one", "1", who="me", why="", drop_later=drop_later)
    world.arrive("one", "a", ("a", 5))
    world.ticks()
    for request in WAYS:
        found = verified(world, "one", request)
        assert (found.status, found.error) == ("equal", None)
        assert (found.epochs or {})["sum"] == (2 if drop_later else 4)
        assert all(v.records for v in found.tables)


@pytest.mark.parametrize("request_", WAYS, ids=lambda r: f"{r.split}-{r.engine}")
def test_batches_are_no_difference(world: World, request_: Request):
    """How many increments a run took, time decided: a history of it is left out."""
    world.controller.register(_ruled({"run_all": {"batch": 5}}))
    for number in range(7):
        world.arrive("one", "a", ("x", number + 1))
    world.ticks()
    assert only_stage(world).epoch == 2
    found = verified(world, "one", request_)
    assert (found.status, found.error) == ("equal", None)
    assert {v.table: v.status for v in found.tables} == {
        "state/sum.sums": "equal",
        "flows/sum.totals": "left_out",
    }


def test_a_table_that_grew_meanwhile_is_no_difference(world: World):
    """What was joined with it depends on when that ran: left out, in words."""
    stage = {"translator": "priced", "inputs": {"items": "a", "prices": "b"}, "buckets": 2}
    world.controller.register({**DIAMOND, "stages": {"sum": stage}})
    for source, n in (("b", 1), ("a", 1), ("b", 10)):
        world.arrive("diamond", source, ("x", n))
        world.clock.advance(1)
        world.ticks()
    for request in WAYS:
        found = verified(world, "diamond", request)
        assert (found.status, found.error) == ("equal", None)
        assert [v.status for v in found.tables] == ["left_out", "left_out"]
        assert "`sum`: what StaticTable lets a run read" in found.tables[0].because


def test_what_another_rule_let_a_stage_read_is_left_out(world: World):
    """A document's new rule is a change that asks what to keep, and is told of its tables."""
    world.controller.register(_ruled({"count_window": {"size": 3}}))
    for number in range(7):
        world.arrive("one", "a", ("x", number + 1))
    world.ticks()
    with pytest.raises(ChangeRefusedError, match=r"count_window\(size=3\) -> run_all"):
        world.controller.change(_ruled("run_all"), choice=Choice())
    world.controller.change(_ruled("run_all"), choice=Choice(keep=frozenset({"sum"})))
    world.ticks()
    assert only_stage(world).epoch == 3
    found = verified(world, "one")
    assert (found.status, found.error) == ("equal", None)
    assert all("earlier version" in v.because for v in found.tables)


def _ruled(rule: Any) -> dict[str, Any]:
    stage = {**ONE["stages"]["sum"], "translator": "told", "buckets": 2, "runnable": rule}
    return {**ONE, "stages": {"sum": stage}}


def test_what_was_corrected_is_left_out_with_all_behind_it(world: World):
    """Its epochs have no counterpart in a recomputation; undone, it is compared again."""
    stages = {
        "left": {"translator": "sum", "inputs": {"items": "a"}},
        "behind": {"translator": "sum", "inputs": {"items": "left.totals"}},
        "other": {"translator": "sum", "inputs": {"items": "a"}},
    }
    fed(world, {**ONE, "stages": stages})
    amendments = world.controller.amendments
    right = [Correction({"word": "a"}, "records", ({"n": 100},))]
    amendments.correct("one", "left", "sums", right, who="me", why="wrong")
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    found = verified(world, "one")
    assert (found.status, found.error) == ("equal", None)
    compared = {v.table for v in found.tables if v.status == "equal"}
    assert compared == {"state/other.sums", "flows/other.totals"}
    amendments.roll_back("one", "left:3", who="me", why="not so")
    world.ticks()
    found = verified(world, "one")
    assert (found.status, found.error) == ("equal", None)
    assert {v.status for v in found.tables} == {"equal"}


EDGES = {"edges": {"schema": "src BIGINT NOT NULL, dst BIGINT NOT NULL"}}
CLUSTERING: dict[str, Any] = {
    "name": "clustering",
    "sources": EDGES,
    "stages": {
        "coefficients": {
            "translator": "clustering_coefficients",
            "parameters": {"multicast": True},
            "inputs": {"edges": "edges"},
            "buckets": 2,
        }
    },
}
PAGERANK: dict[str, Any] = {
    "name": "pagerank",
    "sources": EDGES,
    "stages": {
        "rank": {
            "translator": "incremental_pagerank",
            "parameters": {"threshold": 0.0, "within": 0.05},
            "inputs": {"edges": "edges", "converged": "verdict.converged"},
            "buckets": 2,
        },
        "verdict": {
            "translator": "pagerank_verdict",
            "parameters": {"tolerance": 0.01},
            "inputs": {"moved": "rank.moved"},
            "buckets": 2,
        },
    },
}


class Biased(IncrementalPageRank):
    """Gives pages a rank that is too large by a part of it; its rank is emitted, not passed on."""

    bias = 0.0

    def translate(self, key: Any, group: Any, out: Any) -> None:
        super().translate(key, group, _Biased(out, type(self).bias))


class _Biased:
    def __init__(self, out: Any, bias: float) -> None:
        self._out, self._bias = out, bias

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def pages(self, node: int, rank: float) -> None:
        self._out.pages(node, rank * (1 + self._bias))


@pytest.fixture
def graphs(world: World, monkeypatch: pytest.MonkeyPatch, without_syncs: None) -> World:
    world.translators |= {
        "clustering_coefficients": ClusteringCoefficients,
        "incremental_pagerank": Biased,
        "pagerank_verdict": PageRankVerdict,
    }
    monkeypatch.setattr(Biased, "bias", 0.0)
    world.restart()
    return world


def linked(world: World, document: dict[str, Any], *, queued: bool) -> World:
    """Edges that come when nothing is left to do, or all of them before the first run."""
    world.controller.register(document)
    for edges in ([(1, 2), (2, 3), (3, 1)], [(1, 3), (3, 4), (4, 1)]):
        world.arrive(document["name"], "edges", *edges)
        world.clock.advance(1)
        if not queued:
            world.ticks(300)
    world.ticks(500)
    return world


@pytest.mark.parametrize(
    ("document", "split", "queued"),
    [
        (CLUSTERING, "increments", False),
        (CLUSTERING, "increments", True),
        (CLUSTERING, "at_once", True),
        (PAGERANK, "increments", False),
        (PAGERANK, "increments", True),
        (PAGERANK, "at_once", True),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else None,
)
def test_what_runs_in_rounds_is_compared_by_its_results(
    graphs: World, document: Any, split: Any, queued: bool
):
    """However edges came: ranks as near as declared, rounds not at all, changes left out."""
    found = verified(linked(graphs, document, queued=queued), document["name"], Request(split))
    assert (found.status, found.error) == ("equal", None), found.tables
    kinds = {v.table: v.status for v in found.tables}
    compared = {table for table, status in kinds.items() if status == "equal"}
    if document is CLUSTERING:
        assert compared == {"state/coefficients.graph", "flows/coefficients.co"}
        return
    states = {f"state/{name}" for name in ("rank.nodes", "rank.links", "rank.whole")}
    assert compared == {*states, "state/verdict.last", "flows/rank.pages"}
    within = {v.table: v.within for v in found.tables}
    assert within["flows/rank.pages"] == "within 0.05"
    assert within["state/rank.nodes"] == "within 0.05, without shared, weight, round"
    because = {v.table: v.because for v in found.tables}
    assert "it follows changes" in because["flows/rank.moved"]


def test_a_rank_that_is_wrong_is_found(graphs: World, monkeypatch: pytest.MonkeyPatch):
    """By more than is declared, page by page, in the table that has it."""
    linked(graphs, PAGERANK, queued=True)
    monkeypatch.setattr(Biased, "bias", 0.12)
    found = verified(graphs, "pagerank")
    assert (found.status, found.suspect, found.error) == ("differs", "rank", None)
    wrong = {v.table: v.differing for v in found.tables if v.status == "differs"}
    assert wrong.keys() == {"flows/rank.pages"}
    assert sorted(one.key for one in wrong["flows/rank.pages"]) == ["1", "2", "3", "4"]
