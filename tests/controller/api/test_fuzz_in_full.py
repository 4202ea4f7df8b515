"""Every check of schemathesis in all of its phases, on every operation of a real controller.

The tool plays each phase by its own engine: the document's examples, the corners of each parameter,
random requests, and chains of them by what answers and requests have in common. It finds nothing,
but where the document cannot say what a value means: a request that the document allows may be
refused with one of the codes of `MEANT`, and with no other. `test_fuzz.py` plays a part of this in
the default run.

Before each request the dataflow is there, and after each change the loop goes on, so requests meet
what others have left: paused stages, roll-backs, versions, tokens, files.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError
from controller.ingest.drop_folder import DropFolder
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World
from tests.sampling import examples

schemathesis = pytest.importorskip("schemathesis", reason="is of the `dev` extra")
engine = pytest.importorskip("schemathesis.engine")
asgi = pytest.importorskip("schemathesis.python.asgi")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("without_syncs"),
]

schemathesis.checks.load_all_checks()

PHASES = {"examples": 1, "coverage": 8, "fuzzing": 3, "stateful": 1}
"""In how many parts the operations are played in each phase, so that a part takes minutes."""

MEANT = {
    "cursor_invalid": "a cursor is what a page before said",
    "idempotency_key_reused": "a key names one request",
    "dataflow_invalid": "a document names translators, columns and stages that there are",
    "definition_invalid": "a body or a query names columns, files and stages that there are",
    "epoch_missing": "a stage is named with its epoch",
    "newest_of_snapshot": "a list as of an epoch or a time has one order",
    "key_column_missing": "a look-up names the columns of its key, which the dataflow has",
    "key_column_unknown": "and no others",
    "query_invalid": "a query is SQL over tables and columns that there are",
    "name_invalid": "a name is printable, and its UTF-8 has a length: no pattern says which",
}
"""What a request may mean that is refused, by the code of the refusal or of all its mistakes."""

REFUSED = ("409", "410", "412", "413", "429")
POSITIVE = ("2xx", "3xx", "401", "403", "404", *REFUSED, "5xx")
NEGATIVE = ("400", "401", "403", "404", "405", "406", "415", "422", "428", *REFUSED, "5xx")

KNOWN: dict[str, list[str]] = {
    "name": ["one"],
    "flow": ["a", "sum.totals"],
    "source": ["a"],
    "stage": ["sum"],
    "state": ["sums"],
    "table": ["sum.sums", "sum.totals"],
    "index": ["0", "1"],
}


class Kept:
    """ASGI application over a world whose dataflow is made again whenever a request deleted it."""

    def __init__(self, world: World) -> None:
        self._world = world
        settings = Settings(root=world.root, token=TOKEN)
        self._api: Any = api_of_world(world, settings)
        self._folder: DropFolder = self._api.state.parts.drop_folder
        self._incoming = settings.drop_root / "one" / "a" / "incoming"
        self._api.state.parts.events.stop()  # a stream of events ends at once
        self._fill()

    @property
    def document(self) -> Any:
        """The OpenAPI document, as a client reads it."""
        return json.loads(json.dumps(self._api.openapi()))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, also what is an error of ours; then let the loop go on."""
        if scope["type"] == "http":
            self._fill()
        answered = False

        async def told(message: Any) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._api(scope, receive, told)
        except Exception:  # the application says 500, and raises on for a server to log
            if not answered:
                raise
        if scope.get("method", "GET") != "GET":
            self._go_on()

    def _fill(self) -> None:
        try:
            self._world.store.dataflow("one")
        except CbpError:
            for folder in ("tables", "drop"):
                shutil.rmtree(self._world.root / folder / "one", ignore_errors=True)
            record = self._world.controller.register(ONE)
            self._folder.prepare(record, self._world.controller.dataflow("one"))
            for n in range(3):
                lines = f'{{"word": "x", "n": {n}}}\n{{"word": "y", "n": 2}}\n'
                (self._incoming / f"{n}.jsonl").write_text(lines)
                self._go_on()

    def _go_on(self) -> None:
        """List the drop folder, and let the loop do what there is to do."""
        for _ in range(2):
            for record in self._world.store.dataflows():
                with suppress(CbpError):  # held by what a request began, or deleted
                    dataflow = self._world.controller.dataflow(record.name)
                    self._folder.scan(record, dataflow)
            self._world.clock.advance(5)
        for _ in range(10):  # a stage that fails is tried again and again
            if not self._world.controller.tick().starts:
                break


@pytest.fixture
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Give a dataflow that has run."""
    world = World(tmp_path_factory.mktemp("fuzz"), engine=LocalEngine)
    yield Kept(world)
    asgi._shutdown()  # the tool keeps its thread otherwise until the process ends
    world.close()


def _schema(app: Kept, phase: str, part: int, count: int) -> Any:
    settings = {
        "base-url": "http://127.0.0.1:8420",
        "headers": {"Authorization": f"Bearer {TOKEN}"},
        "continue-on-failure": True,
        "phases": {name: {"enabled": name == phase} for name in PHASES},
        "generation": {"max-examples": count, "deterministic": True, "no-shrink": True},
        "seed": 1,
        "checks": {
            "positive_data_acceptance": {"expected-statuses": list(POSITIVE)},
            "negative_data_rejection": {"expected-statuses": list(NEGATIVE)},
        },
    }
    schema = schemathesis.openapi.from_dict(
        app.document, config=schemathesis.config.SchemathesisConfig.from_dict(settings)
    )
    schema.app = app

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: Any) -> Any:
        if not path_parameters:
            return path_parameters
        chance = random.Random(repr(sorted(path_parameters.items())))
        if chance.random() < 0.25:
            return path_parameters
        known = {
            name: chance.choice(KNOWN[name])
            for name, given in path_parameters.items()
            if name in KNOWN and not _is_forbidden(name, given)
        }
        return {**path_parameters, **known}

    def is_in_part(context: Any) -> bool:
        return crc32(context.operation.label.encode()) % PHASES[phase] == part

    return schema.include(is_in_part)


def _is_forbidden(name: str, given: Any) -> bool:
    """Tell whether the document forbids a value; then it has to be sent, and refused."""
    return name == "index" and not (isinstance(given, int) and 0 <= given < 2**63)


def _is_meant(check: str, answer: bytes) -> bool:
    """Return whether a request was refused for what it means, which no document can say."""
    if check != "positive_data_acceptance":
        return False
    problem = json.loads(answer)
    mistakes = problem["details"].get("mistakes", ()) if problem["details"] else ()
    codes = {one["code"] for one in mistakes}
    return problem["error_code"] in MEANT or (bool(codes) and codes <= MEANT.keys())


def _is_made_again(failure: Any) -> bool:
    """Return whether a request found the dataflow after its deletion: `Kept` had made it again."""
    return getattr(failure, "free", "") == "DELETE /api/v1/dataflows/one"


@pytest.mark.parametrize(
    ("phase", "part"), [(one, part) for one, parts in PHASES.items() for part in range(parts)]
)
def test_no_check_finds_anything(app: Kept, phase: str, part: int) -> None:
    """Each operation was asked, and every answer is right by every check."""
    found: dict[tuple[str, str], str] = {}
    asked, calls = set[str](), Counter[str]()
    schema = _schema(app, phase, part, examples(20))
    for event in engine.from_schema(schema).execute():
        if isinstance(event, engine.events.FatalError):
            raise event.exception
        if isinstance(event, engine.events.NonFatalError):
            found["error", event.label] = repr(event.value)
        if not isinstance(event, engine.events.ScenarioFinished):
            continue
        for case, checks in event.recorder.checks.items():
            label = event.recorder.cases[case].value.operation.label
            made = event.recorder.interactions.get(case)
            asked.add(label)
            calls[label] += 1
            for one in checks:
                if one.status == engine.Status.FAILURE:
                    answer = made.response.content if made and made.response else b""
                    failure = one.failure_info.failure
                    if not (_is_meant(one.name, answer) or _is_made_again(failure)):
                        why = failure.message
                        where = f"{made.request.method} {made.request.uri}" if made else ""
                        body = made.request.body if made else b""
                        found.setdefault((one.name, label), f"{where} {body!r}\n{why}\n{answer!r}")
    assert not found, "\n\n".join(f"{key}: {text}" for key, text in found.items())
    operations = {one.ok().label for one in schema.get_all_operations()}
    assert calls.total() > len(operations) / 2
    if phase in ("coverage", "fuzzing"):
        assert asked == operations
