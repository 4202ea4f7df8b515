"""Scheduling through the REST interface, on the real controller, store and ingestion.

Limits of flows, places, batches, cancelled runs, cycles, closes: as an operator meets them.

Each kind of bad input (destinations, decisions, memos, framing keys, alignments, endless cycles) is
a coded error with stage, function, file and line, at its stage only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cbp import Align, All, Decision, Input, Output, RunAny, State, Translate, framed, route
from cbp.engine.direct import LocalEngine
from cbp.sdk.declare import place_of
from controller.loop import LoopLimits
from controller.settings import Settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import DIAMOND, ONE, SCHEMA, Deferred, Inline, Join, Sum, World

TOKEN = "canary-of-the-tests"


class Again(Sum):
    """Takes what comes, from outside or from its own output."""

    runnable = RunAny()
    items = Input(SCHEMA, route_by="word")
    back = Input(SCHEMA, route_by="word")


class Hourly(Sum):
    """Cuts its input by a column."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


class Aligned(Join):
    """Reads both sides by their numbers."""

    left = Input(SCHEMA, route_by="word", frame_by="n")
    right = Input(SCHEMA, route_by="word", frame_by="n")


class OwnAligned(Aligned):
    """Names its rule itself."""

    runnable = Align()


class Operator:
    """A service in this process, and a client of it."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.runs = Deferred()
        self.world = World(root / "w", executor=self.runs, framers=Inline(), **more)
        self.world.translators |= {"again": Again, "hourly": Hourly, "aligned": Aligned}
        self.world.translators["own"] = OwnAligned
        self.world.translators |= {name: bad for name, (bad, _) in (BAD | ROUTES).items()}
        self.world.restart()
        app = api_of_world(self.world, Settings(root=root, token=TOKEN))
        self.http = httpx.Client(
            transport=AppTransport(app),
            base_url="http://127.0.0.1:8420/api/v1",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def register(self, document: dict[str, Any], translator: str = "", **stage: Any) -> str:
        made = copy.deepcopy(document)
        for node in made["stages"].values():
            node.update(stage)
            node["translator"] = translator or node["translator"]
        answer = self.http.post("/dataflows", json=made)
        assert answer.status_code == 201, answer.text
        return str(made["name"])

    def post(self, path: str, status: int = 200) -> Any:
        answer = self.http.post(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def waits(self, name: str) -> dict[str, Any]:
        items = self.http.get(f"/dataflows/{name}/waiting").json()["items"]
        return {item["stage"]: item for item in items}

    def work(self) -> None:
        """Tick and run until nothing is left to do."""
        for _ in range(100):
            starts = self.world.controller.tick().starts
            if self.runs.waiting:
                self.runs.run_next()
            elif not starts:
                return
        raise AssertionError("does not come to an end")


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path)
    yield made
    made.world.close()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"increments": 2}, "has 2 increments (limit 2)"),
        ({"records": 3}, "has 4 records (limit 3)"),
        ({"bytes": 100}, "bytes (limit 100)"),
    ],
)
def test_a_flow_has_limits(operator: Operator, limit: dict[str, int], words: str) -> None:
    """By increments, records and bytes: its writer waits, says so, and goes on.

    Another dataflow goes on at every increment while it waits.
    """
    document = copy.deepcopy(DIAMOND)
    document["stages"]["left"]["limits"] = {"totals": limit}
    name = operator.register(document)
    for _ in range(9):
        operator.world.arrive(name, "a", ("x", 1), ("y", 1))
    operator.work()
    wait = operator.waits(name)["left"]
    assert (wait["kind"], words in wait["words"]) == ("readers", True), wait
    epoch = operator.world.store.stages(name)[1].epoch
    other = operator.register(ONE)
    for number in range(3):
        operator.world.arrive(other, "a", ("x", number))
        operator.work()
        assert operator.world.store.stages(other)[0].epoch == number + 1
    assert operator.waits(name)["left"]["kind"] == "readers", "it waits all the while"
    assert operator.world.store.stages(name)[1].epoch == epoch
    operator.world.arrive(name, "b", ("x", 1))
    operator.work()
    assert operator.world.store.stages(name)[1].epoch > epoch or "bytes" in limit
    status = operator.http.get(f"/dataflows/{name}").json()["stages"]
    assert words.split("(")[1] in next(s["waiting"] for s in status if s["name"] == "left")


def test_places_are_limited_over_all_dataflows(operator: Operator) -> None:
    """Two at a time; the third says so, and is the next."""
    for name in ("one", "two", "three"):
        operator.register({**ONE, "name": name})
        operator.world.arrive(name, "a", ("x", 1))
        operator.world.clock.advance(1)
    operator.world.controller.tick()
    assert len(operator.runs.waiting) == 2
    wait = operator.waits("three")["sum"]
    assert (wait["kind"], wait["words"]) == ("place", "waits for a free slot (2 in all)")
    operator.runs.run_next()
    operator.world.controller.tick()
    assert operator.waits("three")["sum"]["kind"] in ("", "running")
    operator.work()


def test_small_increments_wait_together_for_one_run(operator: Operator) -> None:
    """As many as the rule allows; the rest in the next run."""
    name = operator.register(ONE, runnable={"run_all": {"batch": 5}})
    for number in range(7):
        operator.world.arrive(name, "a", ("x", number))
    operator.work()
    runs = operator.http.get("/runs", params={"dataflow": name}).json()["items"]
    assert [len(run["read"]["items"]) for run in runs] == [2, 5]


def test_a_cancelled_run_leaves_nothing_and_runs_again(operator: Operator) -> None:
    """Its stage says how to go on; what it read stays queued; a second cancel is refused."""
    name = operator.register(ONE)
    operator.world.arrive(name, "a", ("x", 1))
    operator.world.controller.tick()
    (run,) = operator.http.get("/runs").json()["items"]
    operator.post(f"/runs/{run['id']}/cancel", 202)
    operator.runs.run_next()
    operator.world.controller.tick()
    shown = operator.http.get(f"/runs/{run['id']}").json()
    assert (shown["status"], shown["error"]["error_code"]) == ("FAILED", "run_cancelled")
    assert operator.http.get(f"/dataflows/{name}/flows/sum.totals/records").json()["items"] == []
    wait = operator.waits(name)["sum"]
    assert (wait["kind"], wait["inputs"][0]["unread"]) == ("stopped", 1)
    assert "`cbp resume` runs epoch 0 again" in wait["words"]
    operator.post(f"/runs/{run['id']}/cancel", 409)
    operator.post(f"/dataflows/{name}/resume")
    operator.work()
    actual = operator.http.get(f"/dataflows/{name}/flows/sum.totals/records").json()["items"]
    assert [row["n"] for row in actual] == [1]
    assert operator.http.get("/runs").json()["items"][0]["attempt"] == 2


def test_a_paused_stage_runs_again_once_it_is_resumed(operator: Operator) -> None:
    """It is `paused` wherever it is shown, and no trouble; a retry of it or its run is refused.

    A resume of the stage lets it run, and leaves the pause of another stage.
    """
    name = operator.register(DIAMOND)
    for stage in ("left", "right"):
        operator.post(f"/dataflows/{name}/stages/{stage}/pause")
    for source in ("a", "b"):
        operator.world.arrive(name, source, ("x", 1))
    operator.work()
    detail = operator.http.get(f"/dataflows/{name}").json()
    states = {one["name"]: (one["state"], one["paused_itself"]) for one in detail["stages"]}
    assert states == {
        "left": ("paused", True),
        "right": ("paused", True),
        "join": ("waiting", False),
    }
    assert detail["summary"]["state"] == "paused"
    assert detail["summary"]["problem"].startswith("left: is paused by the operator")
    assert operator.waits(name)["left"]["kind"] == "paused"
    assert operator.http.get("/degraded").json()["items"] == []
    refused = operator.post(f"/dataflows/{name}/stages/left/retry", 409)
    assert (refused["error_code"], refused["details"]["stage"]) == ("stage_paused", "left")
    assert f"cbp resume {name} left" in refused["message"]
    operator.work()
    assert operator.http.get("/runs").json()["items"] == []
    operator.post(f"/dataflows/{name}/stages/left/resume")
    operator.work()
    assert {run["stage"] for run in operator.http.get("/runs").json()["items"]} == {"left"}
    assert operator.waits(name)["right"]["kind"] == "paused"
    operator.post(f"/dataflows/{name}/resume")
    operator.work()
    assert operator.http.get(f"/dataflows/{name}").json()["summary"]["state"] == "ok"
    ran = {run["stage"] for run in operator.http.get("/runs").json()["items"]}
    assert ran == {"left", "right", "join"}


def test_a_paused_stage_whose_run_fails_stays_paused(operator: Operator) -> None:
    """A failure does not take the place of the pause; nothing is tried until a resume."""
    name = operator.register(ONE)
    operator.world.arrive(name, "a", ("x", 1))
    operator.world.controller.tick()
    (run,) = operator.http.get("/runs").json()["items"]
    operator.post(f"/dataflows/{name}/stages/sum/pause")
    operator.post(f"/runs/{run['id']}/cancel", 202)
    operator.work()
    shown = operator.http.get(f"/dataflows/{name}").json()
    assert (shown["summary"]["state"], shown["stages"][0]["state"]) == ("paused", "paused")
    assert operator.http.get("/degraded").json()["items"] == []
    (item,) = operator.http.post("/runs/retry", json={"runs": [run["id"]]}).json()["items"]
    assert (item["status"], item["error"]["error_code"]) == (409, "stage_paused")
    operator.post(f"/dataflows/{name}/stages/sum/resume")
    operator.work()
    assert [one["status"] for one in operator.http.get("/runs").json()["items"]] == [
        "COMMITTED",
        "FAILED",
    ]


def test_a_cycle_that_does_not_drain_is_shown_and_paused(tmp_path: Path) -> None:
    """With its turns; other dataflows go on; a pause by REST stops it."""
    operator = Operator(tmp_path, limits=LoopLimits(turns_max=5))
    stage = {"translator": "again", "inputs": {"items": "a", "back": "sum.totals"}}
    name = operator.register({**ONE, "name": "loop", "stages": {"sum": stage}})
    other = operator.register(ONE)
    operator.world.arrive(name, "a", ("x", 1))
    operator.world.arrive(other, "a", ("x", 1))
    for _ in range(10):
        operator.world.controller.tick()
        operator.runs.run_next()
    wait = operator.waits(name)["sum"]
    assert "the cycle sum -> sum does not drain" in wait["words"]
    assert wait["turns"] > 5
    assert wait["error"]["error_code"] == "cycle_undrained"
    details = wait["error"]["details"]
    assert (details["stage"], details["function"]) == ("sum", "Again.translate")
    assert details["place"] == place_of(Sum.translate)
    assert details["cycle"] == ["sum"]
    assert operator.world.store.stages(other)[0].epoch == 1
    operator.post(f"/dataflows/{name}/stages/sum/pause")
    operator.work()
    assert operator.waits(name)["sum"]["kind"] == "paused"
    operator.world.close()


def test_a_close_by_rest_ends_a_frame(operator: Operator) -> None:
    """Shown open before, read after; repeated with its key it changes nothing."""
    name = operator.register(ONE, translator="hourly")
    operator.world.arrive(name, "a", ("x", 7), ("y", 7))
    operator.work()
    wait = operator.waits(name)["sum"]
    assert wait["kind"] == "frame"
    assert wait["inputs"][0]["open_frame"] == {"number": 0, "framing_key": 7, "records": 2}
    key = {"Idempotency-Key": "evening"}
    first = operator.http.post(f"/dataflows/{name}/flows/a/close", headers=key)
    assert (first.status_code, first.json()["inputs"]) == (201, ["sum.items"])
    operator.work()
    assert operator.world.store.stages(name)[0].epoch == 1
    operator.world.arrive(name, "a", ("x", 7))
    again = operator.http.post(f"/dataflows/{name}/flows/a/close", headers=key)
    assert again.json() == first.json()
    operator.work()
    assert operator.waits(name)["sum"]["inputs"][0]["open_frame"]["number"] == 1
    refused = operator.http.post(f"/dataflows/{name}/flows/sum.totals/close")
    assert (refused.status_code, refused.json()["error_code"]) == (409, "flow_unframed")
    assert operator.http.post(f"/dataflows/{name}/flows/b/close").status_code == 404
    listed = operator.http.get(f"/dataflows/{name}/punctuations").json()["items"]
    assert [(one["number"], one["reason"]) for one in listed] == [(0, "request")]


# bad input: a stage stops with a coded reason, others go on


class Absent(Sum):
    """Reads what is not there."""

    def runnable(self, connectors: Any, memo: Any) -> Decision:
        return Decision({"items": (99,)}, {}, memo)


class Grabber(Sum):
    """Removes without a run."""

    def runnable(self, connectors: Any, memo: Any) -> Decision:
        waiting = tuple(i.index for i in connectors["items"].waiting)
        return Decision({}, {"items": waiting}, memo)


class Stranger(Sum):
    """Removes from an input that it does not have."""

    def runnable(self, connectors: Any, memo: Any) -> Decision:
        actual = tuple(i.index for i in connectors["items"].waiting)
        return Decision({"items": actual}, {"others": actual}, memo)


class Hoarder(Sum):
    """Remembers an object."""

    def runnable(self, connectors: Any, memo: Any) -> Decision:
        return Decision({"items": (connectors["items"].unread[0].index,)}, {}, object())


class Framed(Sum):
    """Frames with a memo that no JSON holds."""

    items = Input(
        SCHEMA, route_by="word", frame_by=framed(lambda record, memo: (record.n, {1}), memo=True)
    )


class Anything(Sum):
    """Frames by what labels nothing."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda record: [record.n]))


BAD = {
    "absent": (Absent, "reads increment 99 of input 'items', which is not queued there"),
    "grabber": (Grabber, "removes increments but reads none"),
    "stranger": (Stranger, "removes from the input 'others', which does not exist"),
    "hoarder": (Hoarder, "JSON cannot store memo (object)"),
    "framed": (Framed, "JSON cannot store memo (set)"),
    "anything": (Anything, "as the framing key, but got [1] of type list"),
}
CODES = {
    "absent": "increment_absent",
    "grabber": "removal_refused",
    "stranger": "removal_refused",
    "hoarder": "memo_not_serialisable",
    "framed": "memo_not_serialisable",
    "anything": "framing_key_invalid",
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_answer_stops_its_stage_only(operator: Operator, name: str) -> None:
    """With stage, function, file and line, and what came; nothing of it is lost."""
    _, cause = BAD[name]
    operator.register({**ONE, "name": "bad"}, translator=name)
    operator.register(ONE)
    for dataflow in ("bad", "one"):
        operator.world.arrive(dataflow, "a", ("x", 1), ("x", 2))
    operator.work()
    (stage,) = operator.world.store.stages("bad")
    function = "items.frame_by" if name in ("framed", "anything") else "runnable"
    assert f"stage 'sum': {function} failed at {__file__}:" in stage.paused_because
    assert cause in stage.paused_because
    error = operator.waits("bad")["sum"]["error"]
    assert error == stage.error, "it is kept, not only remembered"
    assert error["error_code"] == CODES[name]
    assert (error["details"]["stage"], error["details"]["function"]) == ("sum", function)
    assert error["details"]["place"].startswith(f"{__file__}:")
    held = operator.world.store.connectors("bad")["sum"]["items"].held
    assert (stage.epoch, sum(increment.records for increment in held)) == (0, 2)
    assert operator.world.store.stages("one")[0].epoch == 1


def routed(function: Any, type_: str = "STRING") -> type[Translate]:
    """Return a class whose records go where a function says."""

    class Routed(Translate):
        """Adds up per word."""

        key = f"word {type_}"
        items = Input(SCHEMA, route_by=route(function, type_))
        sums = State(f"word {type_}, n BIGINT")
        totals = Output(f"word {type_}, n BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Keep nothing."""

    return Routed


ROUTES = {
    "unhashable": (routed(lambda record: {record.word: 1}), "got {'x': 1}"),
    "a set of lists": (routed(lambda record: {[record.word]}), "unhashable type: 'list'"),
    "mixed": (routed(lambda record: [record.word, record.n]), "declared (STRING), got 1"),
    "mixed by record": (
        routed(lambda record: record.n if record.n == 2 else record.word),
        "declared (STRING), got 2",
    ),
    "unknown flow": (
        routed(lambda record: All("sum")),
        "names 'sum', which is no input or state of this stage",
    ),
}


ROUTE_CODES = dict.fromkeys(ROUTES, "route_key_invalid") | {"unknown flow": "route_flow_unknown"}


@pytest.mark.parametrize("name", ROUTES)
def test_a_wrong_destination_stops_its_stage_only(tmp_path: Path, name: str) -> None:
    """Tried again as failures are, then stopped: with code, stage, function, line and record."""
    operator = Operator(tmp_path, engine=LocalEngine)
    translator, cause = ROUTES[name]
    operator.register({**ONE, "name": "bad"}, translator=name)
    operator.register(ONE)
    for dataflow in ("bad", "one"):
        operator.world.arrive(dataflow, "a", ("x", 1), ("x", 2))
    for _ in range(6):
        operator.work()
        operator.world.clock.advance(3600)
    wait = operator.waits("bad")["sum"]
    assert (wait["kind"], wait["error"]["error_code"]) == ("stopped", ROUTE_CODES[name])
    details = wait["error"]["details"]
    assert (details["stage"], details["function"]) == ("sum", "Routed.items.route_by")
    assert cause in details["cause"]
    computed = translator().spec().inputs[0].route_by
    assert details["place"] == computed.place  # type: ignore[union-attr]
    assert details["inputs"]["items"][0].startswith("('x', ")
    runs = operator.http.get("/runs", params={"dataflow": "bad"}).json()["items"]
    assert runs[0]["error"] == wait["error"]
    assert len(operator.world.store.connectors("bad")["sum"]["items"].queue) == 1
    assert operator.world.store.stages("one")[0].epoch == 1
    operator.world.close()


@pytest.mark.parametrize("form", ["class", "document"])
def test_keys_that_go_backwards_stop_an_alignment(operator: Operator, form: str) -> None:
    """Naming the input and both keys, function, file and line; the other dataflow goes on.

    The class that names the rule, or the translator that a document gives it to.
    """
    document = copy.deepcopy(DIAMOND)
    for name in ("left", "right"):
        del document["stages"][name]
    stage = document["stages"]["join"]
    stage |= {"translator": "own" if form == "class" else "aligned"}
    stage |= {"inputs": {"left": "a", "right": "b"}}
    if form == "document":
        stage["runnable"] = "align"
    name = operator.register(document)
    other = operator.register(ONE)
    operator.world.arrive(other, "a", ("x", 1))
    operator.world.arrive(name, "a", ("x", 2))
    operator.world.arrive(name, "a", ("x", 1))
    operator.world.arrive(name, "a", ("x", 3))
    operator.world.arrive(name, "b", ("x", 2), ("x", 3))
    operator.work()
    actual = operator.http.get(f"/dataflows/{name}").json()["stages"][0]
    assert actual["state"] == "stopped"
    place = f"{place_of(Join.translate)} (stages.join.runnable)"
    if form == "class":
        place = place_of(OwnAligned)
    assert f"stage 'join': Align failed at {place}" in actual["waiting"]
    assert "input 'left' has framing key 1 after 2" in actual["waiting"]
    error = operator.waits(name)["join"]["error"]
    assert error["error_code"] == "alignment_backwards"
    told = {part: error["details"][part] for part in ("stage", "function", "place")}
    assert told == {"stage": "join", "function": "Align", "place": place}
    assert operator.world.store.stages(other)[0].epoch == 1
