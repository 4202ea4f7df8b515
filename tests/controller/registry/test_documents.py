"""Documents that are too much: refused by a limit that is named, at a cost of their own size."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cbp.errors import DataflowInvalidError, Mistake
from cbp.errors.message_limits import MISTAKES_MAX, listed, shortened
from cbp.model.dataflow.dataflow import (
    FLOWS_MAX,
    SOURCES_MAX,
    STAGES_MAX,
    Dataflow,
    SourceNode,
    StageNode,
)
from cbp.model.flow.schema import COLUMNS_MAX, Schema
from controller.cli import main
from controller.cli.session import Session
from controller.registry.text import TEXT_BYTES_MAX, VALUES_MAX, parse_document
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World
from tests.growth import GROWTH, assert_linear, thread_seconds

YAML = "application/yaml"
ANSWER_BYTES_MAX = 500_000
TIMES_MAX = 12.0
"""Processor time, in that of reading ordinary text of the largest size; most take less than two
of it, and took hundreds."""

LONG = "x" * 50_000
MANY = 110


def document(sources: str = "", stages: str = "") -> str:
    return (
        f"name: big\nsources:\n  a: {{schema: 'word STRING, n BIGINT'}}\n{sources}stages:\n{stages}"
    )


def each(line: str, count: int) -> str:
    return "".join(line.replace("#", str(number)) for number in range(count))


def column_lines(count: int) -> str:
    return ", ".join(f"c{number} INT" for number in range(count))


SUM = "{translator: sum, inputs: {items: a}}"
STAGE = f"  s#: {SUM}\n"

BOMBS = {
    "a long text, by aliases": (
        document(
            stages=f"  s: {{translator: &b {LONG}}}\n" + each("  s#: {translator: *b}\n", 400)
        ),
        "document_too_large",
    ),
    "a long text as a name": (
        document(stages=f"  s: {{translator: sum, parameters: {{? {LONG} : 1}}}}\n"),
        "document_too_large",
    ),
    "a large collection, by aliases, shown by each mistake": (
        document(
            stages="  s: {buckets: &b [" + 2_000 * "1," + "]}\n" + each("  s#: {buckets: *b}\n", 30)
        ),
        "document_too_large",
    ),
    "names that say as much as the largest mistakes": (
        document(stages=each(f"  {LONG[:900]}#: {{translator: {LONG[:900]}#}}\n", 400)),
        "translator_unknown",
    ),
    "an unknown translator with a long name": (
        document(stages=f"  s: {{translator: {LONG}}}\n"),
        "translator_unknown",
    ),
    "pairs that stand twice": (
        document(stages=f"  {LONG[:900]}: {{" + 20_000 * "a: 1, " + "}\n"),
        "name_twice",
    ),
    "fields that are none": (document() + each("field#: 1\n", 20_000), "field_unknown"),
    "inputs that are none": (
        document(stages="  s: {translator: sum, inputs: {" + each("i#: a, ", 10_000) + "}}\n"),
        "input_unknown",
    ),
    "flows that are none, each answered with all that there are": (
        document(
            each("  b#: {schema: 'word STRING, n BIGINT'}\n", SOURCES_MAX - 1),
            each("  s#: {translator: sum, inputs: {items: nope}}\n", MANY),
        ),
        "flow_unknown",
    ),
    "a cycle that never runs": (
        document(
            stages="".join(
                f"  s{n}: {{translator: sum, inputs: {{items: s{(n + 1) % MANY}.totals}}}}\n"
                for n in range(MANY)
            )
        ),
        "cycle_never_runs",
    ),
    "sources": (
        document(each("  b#: {schema: n INT}\n", SOURCES_MAX), f"  s: {SUM}\n"),
        "sources_too_many",
    ),
    "stages": (document(stages=each(STAGE, STAGES_MAX + 1)), "stages_too_many"),
    "columns": (
        document(f"  b: {{schema: '{column_lines(COLUMNS_MAX + 1)}'}}\n", f"  s: {SUM}\n"),
        "schema_too_wide",
    ),
    "directives": (each("%TAG !a#! x\n", 60_000) + "--- {}", "document_too_large"),
    "directives, by other line breaks": (
        each("%TAG !a#! x\r", 60_000) + "--- {}",
        "document_too_large",
    ),
    "levels": ("[" * 200_000, "document_too_large"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("documents"))
    made.controller.register(ONE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(world: World) -> Session:
    settings = Settings(root=world.root, token=TOKEN)
    return Session(settings, AppTransport(api_of_world(world, settings)))


@pytest.fixture(scope="module")
def ordinary_seconds() -> float:
    """Return what it takes to read a sound document of the largest size."""
    text = document() + each("f#: words\n", VALUES_MAX - 100)
    text += "#" * (TEXT_BYTES_MAX - len(text))
    return min(thread_seconds(lambda: parse_document(text, YAML)) for _ in range(3))


@pytest.mark.part(every=4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_too_much_is_refused_alike_at_a_bounded_cost(
    world: World, session: Session, bomb: str, ordinary_seconds: float
) -> None:
    """Checked, registered or put in place of another: one judge, one short answer, soon."""
    text, code = BOMBS[bomb]
    assert len(text) <= TEXT_BYTES_MAX, "else it would be refused for its size"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": YAML}
    costs = list[float]()
    # What else the process does is counted too, so the cheapest of three tries counts.
    while not costs or (len(costs) < 3 and min(costs) >= TIMES_MAX * ordinary_seconds):
        began = time.process_time()
        with httpx.Client(
            transport=session.transport, base_url=session.settings.url, headers=headers
        ) as client:
            answers = [
                client.post("/api/v1/dataflows/validate", content=text),
                client.post("/api/v1/dataflows", content=text),
            ]
        costs.append(time.process_time() - began)
    assert min(costs) < TIMES_MAX * ordinary_seconds
    for answer in answers:
        assert answer.status_code == 422
        assert len(answer.content) < ANSWER_BYTES_MAX
        told = answer.json()
        assert told["error_code"] == "dataflow_invalid"
        mistakes = told["details"]["mistakes"]
        assert code in {mistake["code"] for mistake in mistakes}
        assert len(mistakes) <= MISTAKES_MAX
        assert told["details"] == answers[0].json()["details"]
    assert [record.name for record in world.store.dataflows()] == ["one"]


@pytest.mark.parametrize("command", ["register", "validate"])
def test_the_command_tells_the_limit(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It names what there is too much of, and says that there are more mistakes than it shows."""
    file = tmp_path / "big.yaml"
    for bomb, said in [
        ("stages", f"{STAGES_MAX + 1} stages, but the limit is {STAGES_MAX}"),
        ("fields that are none", f"more than {MISTAKES_MAX} mistakes"),
    ]:
        file.write_text(BOMBS[bomb][0])
        with pytest.raises(SystemExit) as ended:
            main([command, str(file)], session=session)
        assert ended.value.code
        shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert said in shown


@pytest.mark.parametrize("turned", [False, True])
def test_checks_take_time_in_proportion_to_the_dataflow(world: World, turned: bool) -> None:
    """Up to the limits, with stages that read each other from the last to the first, or in circles.

    So many sources, too, which nothing reads.
    """
    (node,) = world.controller.dataflow("one").stages.values()
    schema = Schema.parse(ONE["sources"]["a"]["schema"])

    def seconds(stages: int) -> float:
        names = [f"s{number:03}" for number in range(stages)]
        flows = [f"{name}.totals" for name in names[1:]]
        flows.append(flows[0] if turned else "a0")
        wired = zip(names, flows, strict=True)
        sources = [f"a{number}" for number in range(SOURCES_MAX * stages // STAGES_MAX)]
        big = Dataflow(
            "big",
            {name: SourceNode(name, schema) for name in sources},
            {name: StageNode(name, node.translator, {"items": flow}) for name, flow in wired},
        )

        def check() -> None:
            if not turned:
                return big.check()
            with pytest.raises(DataflowInvalidError) as caught:
                big.check()
            assert {mistake.code for mistake in caught.value.mistakes} == {"cycle_never_runs"}

        return thread_seconds(check)

    assert_linear(seconds, STAGES_MAX // GROWTH)


def test_a_dataflow_built_in_code_has_the_same_limits() -> None:
    """No document is between: the model says it."""
    schema = Schema.parse("n INT")
    nodes = {f"a{n}": SourceNode(f"a{n}", schema) for n in range(SOURCES_MAX + 1)}
    with pytest.raises(DataflowInvalidError) as caught:
        Dataflow("big", nodes, {}).check()
    assert [mistake.code for mistake in caught.value.mistakes] == ["sources_too_many"]


def test_a_dataflow_has_so_many_flows_and_not_one_more(world: World) -> None:
    """Sources and outputs together: the very limit is taken; the error of one more names both."""
    (node,) = world.controller.dataflow("one").stages.values()
    schema = Schema.parse(ONE["sources"]["a"]["schema"])
    output = replace(node.translator.outputs[0], key=(), history=False)
    per_stage = (FLOWS_MAX - 1) // STAGES_MAX + 1
    outputs = tuple(replace(output, name=f"o{number:02}") for number in range(per_stage))
    wide = replace(node.translator, outputs=outputs)
    stages = {
        f"s{number}": StageNode(f"s{number}", wide, {"items": "a0"})
        for number in range(FLOWS_MAX // per_stage - 1)
    }
    rest = FLOWS_MAX - per_stage * len(stages)
    sources = {f"a{number}": SourceNode(f"a{number}", schema) for number in range(rest)}
    full = Dataflow("full", sources, stages)
    assert len(full.flows()) == FLOWS_MAX
    full.check()
    more = replace(full, sources=sources | {"b": SourceNode("b", schema)})
    with pytest.raises(DataflowInvalidError) as caught:
        more.check()
    (mistake,) = caught.value.mistakes
    assert mistake.code == "flows_too_many"
    assert f"{FLOWS_MAX + 1} sources and outputs" in mistake.message


def test_an_error_tells_the_first_mistakes_and_that_there_are_more() -> None:
    """Exactly as many as are allowed are all listed; with one more, the list says so."""
    for count, more in [(MISTAKES_MAX, False), (MISTAKES_MAX + 1, True)]:
        mistakes = [Mistake("x", f"at{number}", "is wrong") for number in range(count)]
        error = DataflowInvalidError("d", mistakes)
        assert len(error.details["mistakes"]) == MISTAKES_MAX
        assert error.details["mistakes"][-1]["where"] == f"at{MISTAKES_MAX - 1}"
        assert ("more than" in error.message) == ("mistakes_max" in error.details) == more
        json.dumps(error.as_dict())


def test_what_is_long_is_shortened_to_its_limit() -> None:
    """A text at the limit stays; one character more, and its middle goes. Names likewise."""
    assert shortened("x" * 50, 50) == "x" * 50
    cut = shortened("a" * 25 + "b" * 26, 50)
    assert len(cut) <= 50
    assert (cut[0], cut[-1]) == ("a", "b")
    assert listed([str(n) for n in range(20)]).endswith("18, 19")
    assert listed([str(n) for n in range(21)]).endswith("18, 19 and 1 more")


def test_a_request_with_many_mistakes_is_answered_with_the_first(session: Session) -> None:
    """What is no dataflow has the same bound: fields that no correction has, and a long one."""
    body = {LONG: 1, **{f"field{number}": 1 for number in range(10_000)}}
    with httpx.Client(
        transport=session.transport,
        base_url=session.settings.url,
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as client:
        answer = client.post("/api/v1/dataflows/one/verifications", json=body)
    told = answer.json()
    assert (answer.status_code, told["error_code"]) == (422, "request_invalid")
    assert len(told["details"]["mistakes"]) == MISTAKES_MAX
    assert "of 10001 mistakes" in told["message"]
    assert len(answer.content) < ANSWER_BYTES_MAX


def test_a_registration_that_cannot_be_answered_is_undone(
    world: World, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller who gets a 500 has registered nothing, and may try again."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    body = {**ONE, "name": "two"}
    with httpx.Client(
        transport=session.transport,
        base_url=session.settings.url,
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as client:
        with monkeypatch.context() as patch:
            patch.setattr("controller.api.figures.overview.Overview.detail", fail)
            assert client.post("/api/v1/dataflows", json=body).status_code == 500
        assert [record.name for record in world.store.dataflows()] == ["one"]
        assert client.post("/api/v1/dataflows", json=body).status_code == 201
        assert client.delete("/api/v1/dataflows/two").status_code == 204
