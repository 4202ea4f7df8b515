"""Values of Parquet at and beyond all limits: refused at the door, or carried through exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from cbp import Input, Output, Schema, State, Translate, TranslateArrow, View
from controller.api.answers.json_values import json_value
from controller.ingest.drop_folder import DropFolder
from tests.controller.ingest.formats.parquet_limits import CASES, INT96, WRAPPERS, Case, parquet
from tests.controller.ingest.harness import accepted, rejected
from tests.controller.live import Live, live

UTC_ZONE = {"timezone": "UTC"}


def _pairs() -> Iterator[tuple[Case, str]]:
    for case in (*CASES, *INT96):
        for name in WRAPPERS:
            if name != "map key" or not case.declared.startswith("MAP"):
                yield case, name


def _id(value: Any) -> str:
    return value.name if isinstance(value, Case) else str(value)


def plain(value: Any) -> Any:
    """Return a value in a form in which equal means the same: kind, sign of zero and NaN too."""
    if isinstance(value, pl.Series):
        return plain(value.to_list())
    if isinstance(value, dict):
        return {"map": sorted(((plain(k), plain(v)) for k, v in value.items()), key=repr)}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return ("time", value.isoformat().replace("+00:00", ""), value.utcoffset())
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    return (type(value).__name__, value.isoformat() if isinstance(value, date) else value)


def as_declared(value: Any, type_: Any) -> Any:
    """Return what Arrow or Polars gives for a value of nested type as Python dicts."""
    if value is None or not type_.arguments:
        return value
    if type_.kind == "ARRAY":
        return [as_declared(one, type_.arguments[0]) for one in value]
    if type_.kind == "STRUCT":
        parts = zip(type_.names, type_.arguments, strict=True)
        return {name: as_declared(value[name], inner) for name, inner in parts}
    pairs = value.items() if isinstance(value, dict) else value
    pairs = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in pairs]
    return {k: as_declared(v, type_.arguments[1]) for k, v in pairs}


def _is_taken(case: Case, wrapper: str, stored: Any) -> bool:
    """Return whether a value can come in; pyarrow writes some INT96 before 1970 without meaning."""
    whole_days = 86_400 * 10**6
    simple = not case.int96 or wrapper == "plain" or stored is None
    return simple or stored >= 0 or stored % whole_days == 0


@pytest.mark.part(every=3)
@pytest.mark.parametrize(("case", "wrapper"), list(_pairs()), ids=_id)
def test_a_value_comes_in_exactly_or_its_row_is_refused(
    case: Case, wrapper: str, tmp_path: Path
) -> None:
    """By `value_range`, with row and column; no value changes, however deeply it is nested."""
    wrap = WRAPPERS[wrapper]
    schema = f"c {wrap.type_of(case)}"
    declared = Schema.parse(schema)["c"].type
    values = case.sound_in(wrapper)
    given = [(stored, means) for stored, means in values if _is_taken(case, wrapper, stored)]
    sound = [stored for stored, _ in given]
    data = parquet(pa.table({"c": wrap.build(case.array(sound))}), int96=case.int96)
    rows = accepted(data, tmp_path, schema, "parquet", options=UTC_ZONE)
    actual = [plain(as_declared(row["c"], declared)) for row in rows]
    assert actual == [plain(wrap.means(means)) for _, means in given]
    for stored in case.refused:
        column = wrap.build(case.array([sound[0], stored, sound[0]]))
        data = parquet(pa.table({"c": column}))
        reason = rejected(data, tmp_path, schema, "parquet", options=UTC_ZONE)
        where = (reason["code"], reason["line"], reason["column"])
        assert where == ("value_range", 2, "c"), (stored, reason["message"])
        assert [one["line"] for one in reason["lines"]] == [2]


def _columns() -> tuple[str, dict[str, pa.Array], dict[str, list[Any]]]:
    """Return one table of all sound values: its schema, its columns, and what they mean."""
    declared, columns, meanings = ["k BIGINT NOT NULL"], {}, {}
    rows = max(len(case.sound_in("plain")) for case in CASES)
    columns["k"] = pa.array(range(rows))
    meanings["k"] = list(range(rows))
    for case, wrapper in _pairs():
        if case.int96:
            continue
        wrap, name = WRAPPERS[wrapper], f"c{len(declared)}"
        sound = case.sound_in(wrapper)
        built = wrap.build(case.array([stored for stored, _ in sound]))
        lacking = rows - len(built)
        columns[name] = pa.concat_arrays([built, pa.nulls(lacking, built.type)])
        meanings[name] = [wrap.means(means) for _, means in sound] + [None] * lacking
        declared.append(f"{name} {wrap.type_of(case)}")
    return ", ".join(declared), columns, meanings


SCHEMA, COLUMNS, MEANINGS = _columns()


class Through(Translate):
    """Keep each record in a state and a view, and emit it."""

    rows = Input(SCHEMA, route_by="k")
    kept = State(SCHEMA)
    seen = View(SCHEMA, key="k")
    sent = Output(SCHEMA, key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in (*group.kept, *group.rows):
            out.kept(*row)
            out.seen(*row)
            out.sent(*row)


class ThroughArrow(TranslateArrow):
    """The same on columns."""

    rows = Input(SCHEMA, route_by="k")
    kept = State(SCHEMA)
    seen = View(SCHEMA, key="k")
    sent = Output(SCHEMA, key="k")

    def translate(self, groups: Any, out: Any) -> None:
        table = pa.concat_tables([groups.kept, groups.rows])
        out.kept(table)
        out.seen(table)
        out.sent(table)


DOCUMENT: dict[str, Any] = {
    "name": "limits",
    "sources": {"given": {"schema": SCHEMA, "format": "parquet", "options": UTC_ZONE}},
    "stages": {
        "one": {"translator": "through", "inputs": {"rows": "given"}, "buckets": 2},
        "two": {"translator": "through_arrow", "inputs": {"rows": "one.sent"}, "buckets": 2},
        "three": {"translator": "through", "inputs": {"rows": "two.sent"}, "buckets": 2},
    },
}


def _take_in(made: Live, document: dict[str, Any], files: dict[str, bytes]) -> None:
    """Register a dataflow, drop a file into each of its sources, and run what may run."""
    world, name = made.world, document["name"]
    world.controller.register(document)
    drop_root = made.session.settings.drop_root
    folder = DropFolder(
        store=world.store,
        files=world.files,
        clock=world.clock,
        drop_root=drop_root,
        on_accept=world.controller.wake,
        settle_seconds=0,
    )
    record, dataflow = world.store.dataflow(name), world.controller.dataflow(name)
    folder.prepare(record, dataflow)
    for source, data in files.items():
        (drop_root / name / source / "incoming" / "one.parquet").write_bytes(data)
    for _ in range(2):
        folder.scan(record, dataflow)
    world.ticks()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Give a service that took in a file of all sound values and ran its stages."""
    root = tmp_path_factory.mktemp("limits")
    made = live(
        root,
        translators={
            "through": Through,
            "through_arrow": ThroughArrow,
        },
    )
    _take_in(made, DOCUMENT, {"given": parquet(pa.table(COLUMNS))})
    yield made
    made.world.close()


def _check(rows: list[dict[str, Any]], *, json: bool = False) -> None:
    """Compare records with what was given, column by column."""
    assert len(rows) == len(MEANINGS["k"])
    schema = Schema.parse(SCHEMA)
    by_key = {row["k"]: row for row in rows}
    for name, means in MEANINGS.items():
        actual = [by_key[k][name] for k in MEANINGS["k"]]
        if json:
            assert actual == [json_value(value) for value in means], schema[name]
            continue
        declared = schema[name].type
        shown = [plain(as_declared(value, declared)) for value in actual]
        assert shown == [plain(value) for value in means], schema[name]


@pytest.mark.part(every=3)
@pytest.mark.parametrize("stage", ["one", "two", "three"])
def test_accepted_values_are_exact_in_states_and_outputs(service: Live, stage: str) -> None:
    """As rows, on columns, and as rows again; as Python's values they are what they were."""
    world = service.world
    record, dataflow = world.store.dataflow("limits"), world.controller.dataflow("limits")
    for state in ("kept", "seen"):
        rows = world.engine.records.read_state(record.folder, dataflow.stages[stage], state)
        _check([dict(row) for row in rows])
    _check(world.flow("limits", f"{stage}.sent"))


@pytest.mark.parametrize("table", ["state/one.kept", "state/two.seen", "flows/three.sent"])
def test_accepted_values_are_exact_in_polars(service: Live, table: str) -> None:
    """Another reader of the Delta tables finds the same."""
    folder = Path(service.world.store.dataflow("limits").folder)
    _check(pl.read_delta(str(folder / table)).to_dicts())


@pytest.mark.parametrize("flow", ["given", "one.sent", "two.sent", "three.sent"])
def test_accepted_values_are_exact_over_rest(service: Live, flow: str) -> None:
    """A page of records has them as JSON shows them, without an error."""
    with service.session.connect() as client:
        page = client.get("dataflows", "limits", "flows", flow, "records", limit=100)
    _check(list(page["items"]), json=True)
