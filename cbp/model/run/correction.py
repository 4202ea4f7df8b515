"""Corrections: an operator replaces the records of some keys in a state. Pure.

    Correction(key, "records", (...))   the key gets exactly these records; none: it is removed
    Correction(key, "set", ({...},))    sets columns of each record of the key, or of a new record

A correction runs as an epoch of its stage, with a translator that is made here in place of the
author's. That translator reads the corrections as a flow, leaves the keys' records in other states
unchanged, and writes no output except the changes of views. So a correction is computed, recorded,
published and recovered like any run.

Invariant: keys that are not named keep every record. In a named key, exactly the named values
change (tests/cbp/model/run/test_correction.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.run_context import NO_RUN
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import DataType, Field, Schema
from cbp.model.json_fields import ADDED, JsonFields

CORRECTIONS_MAX = 10_000
"""Maximum number of keys and of records in one correction, since it is made in memory."""

Kind = Literal["records", "set"]

_AT, _OP, _NAMES = "at", "op", "names"
_REMOVE, _ADD, _SET = "remove", "add", "set"


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of one key.

    Attributes:
        key: Every column of the state that holds the key, with values of its types.
        records: Columns and values, without the key's. Columns that are left out become null
            with `records`, and keep their values with `set`.
    """

    key: Mapping[str, Any]
    kind: Kind
    records: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CorrectionNote(JsonFields):
    """The author, reason and extent of a correction, or of a give-back; a part of the run's record.

    Attributes:
        stage: The stage that has the state; another stage may lead it.
        state: Name of the state; `""` if records that were set aside were given back.
        keys: Number of corrected keys, or of records that were given back.
        path: Parquet file with the corrections, relative to the dataflow's folder, if any.
        request: Id of the request, if any, so that it is done only once.
        left: Number of records that failed again when they were given back, and stay set aside.
    """

    refuses_unknown = True  # redo writes the note again, and would lose what it does not know

    stage: str
    state: str
    keys: int
    path: str
    who: str
    why: str
    request: str = field(default="", metadata=ADDED)
    left: int = field(default=0, metadata=ADDED)

    @property
    def gives_back(self) -> bool:
        """Whether records that were set aside were given back."""
        return not self.state


def check_corrections(
    spec: TranslatorSpec, state: StateSpec, corrections: Sequence[Correction], *, where: str
) -> None:
    """Refuse invalid corrections, with code `correction_invalid` and the first mistake's place."""
    key = spec.key_of(state)
    if not 0 < len(corrections) <= CORRECTIONS_MAX:
        message = f"expected corrections of 1 to {CORRECTIONS_MAX} keys, got {len(corrections)}"
        raise _invalid(where, message)
    keys = set(key.names)
    others = [name for name in state.schema.names if name not in keys]
    seen: set[tuple[Any, ...]] = set()
    for number, one in enumerate(corrections):
        place = f"{where}[{number}]"
        if set(one.key) != keys:
            message = f"expected a key with the columns ({key}), got ({', '.join(one.key)})"
            raise _invalid(place, message)
        for record in one.records:
            if unknown := sorted(set(record) - set(others)):
                columns = ", ".join(others) or "none"
                message = f"column {unknown[0]!r} cannot be set; columns to set: {columns}"
                raise _invalid(place, message)
            for name in others if one.kind == "records" else record:
                if record.get(name) is None and not state.schema[name].nullable:
                    message = f"column {name!r} is NOT NULL, but has no value; give a value"
                    raise _invalid(place, message)
        if one.kind == "set" and (len(one.records) != 1 or not one.records[0]):
            raise _invalid(place, "no column is set; give at least one column with its value")
        if state.second_key:
            _require_named(state, one, place)
        values = tuple(one.key[name] for name in key.names)
        if values in seen:
            raise _invalid(place, "another correction has the same key; combine both into one")
        seen.add(values)
    if sum(len(one.records) for one in corrections) > CORRECTIONS_MAX:
        what = f"the corrections would write more than {CORRECTIONS_MAX} records"
        raise _invalid(where, f"{what}; split them into several requests")


def _require_named(state: StateSpec, correction: Correction, place: str) -> None:
    """Refuse a correction after which two records of a group could have the same second key."""
    columns = ", ".join(state.second_key)
    if correction.kind == "set":
        if named := [name for name in state.second_key if name in correction.records[0]]:
            message = (
                f"{named[0]!r} would get the same value in all records of the key, but this column "
                "distinguishes them; give all `records` of the key instead of `set`"
            )
            raise _invalid(place, message)
        return
    second = {identity([one.get(name) for name in state.second_key]) for one in correction.records}
    if len(second) < len(correction.records):
        message = f"two records have the same values in ({columns}); give only one of them"
        raise _invalid(place, message)


def correcting(spec: TranslatorSpec, state: str, time: datetime) -> TranslatorSpec:
    """Return the translator of a correction: it reads the corrections of one state as input.

    If the state expires, the age of its groups is counted from the time of the correction.
    """
    assert spec.key is not None, "a stage with state has a key"
    name, used_names = "corrections", {one.name for one in spec.states}
    while name in used_names:
        name += "_"
    corrected = spec.state(state)
    schema, columns = _schema(corrected.schema), _columns(corrected.schema)
    key = spec.key_of(corrected).names
    return replace(
        spec,
        name=f"{spec.name} (corrected)",
        inputs=(InputSpec(name, schema, tuple(columns[one] for one in key), (_AT,)),),
        # An outer state would call every key. A correction reads and writes all records of the key
        # in kept states, and the timers of states that expire.
        states=tuple(
            replace(one, grouping="inner", keep=False, expire_ms=0, expires="")
            for one in spec.states
        ),
        # A correction changes views, so it writes their changes.
        outputs=tuple(one for one in spec.outputs if one.view),
        form="groupwise",
        lookups=(),
        translate=_Correct(
            name,
            state,
            tuple((one.name, one.schema.names) for one in spec.states),
            tuple(zip(key, spec.key.names, strict=True)),
            tuple(one.name for one in spec.expiries if one.expires == state),
            expires_at(time, corrected.expire_ms),
        ),
    )


def correction_rows(
    schema: Schema, corrections: Sequence[Correction]
) -> tuple[Schema, list[tuple[Any, ...]]]:
    """Return corrections of a state as the flow that `correcting` reads."""
    rows = [
        (at, op, ",".join(record), *(values.get(name) for name in schema.names))
        for at, (op, record, values) in enumerate(_steps(corrections))
    ]
    return _schema(schema), rows


def corrected_records(
    schema: Schema, correction: Correction, records: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the records of a key after a checked correction."""
    empty = {**dict.fromkeys(schema.names), **correction.key}
    made = [dict(record) for record in records]
    for op, named, _ in _steps((correction,)):
        made = _after(op, made, empty, named)
    return made


def _steps(
    corrections: Sequence[Correction],
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for one in corrections:
        if one.kind == "records":
            yield _REMOVE, {}, one.key
        for record in one.records:
            yield _SET if one.kind == "set" else _ADD, record, {**one.key, **record}


def _columns(schema: Schema) -> dict[str, str]:
    return {name: f"c{number}" for number, name in enumerate(schema.names)}


def _schema(schema: Schema) -> Schema:
    columns = _columns(schema)
    fields = [Field(columns[one.name], one.type) for one in schema.fields]
    text = DataType("STRING")
    return Schema((Field(_AT, DataType("BIGINT")), Field(_OP, text), Field(_NAMES, text), *fields))


@dataclass(frozen=True, slots=True)
class _Correct:
    """The translate function of a correction; picklable by name, so that any worker can load it.

    Attributes:
        key: For each key column: its name in the state, and its name in the group's key.
        timers: The hidden timers of the state, if it expires; `at` is their new time.
    """

    input: str
    state: str
    states: tuple[tuple[str, tuple[str, ...]], ...]
    key: tuple[tuple[str, str], ...]
    timers: tuple[str, ...] = ()
    at: datetime = NO_RUN.time

    def __call__(self, key: Any, group: Any, out: Any) -> None:
        """Write the records of a key after its correction."""
        remain = False
        for name, columns in self.states:
            records = [dict(zip(columns, row, strict=True)) for row in getattr(group, name)]
            if name == self.state:
                records = self._corrected(key, records, getattr(group, self.input), columns)
                remain = bool(records)
            elif name in self.timers:  # these come after the state in `states`
                records = [dict(zip(columns, (*key, self.at), strict=True))] if remain else []
            for record in records:
                getattr(out, name)(**record)

    def _corrected(
        self, key: Any, records: list[dict[str, Any]], steps: Any, columns: tuple[str, ...]
    ) -> list[dict[str, Any]]:
        named_key = {column: getattr(key, name) for column, name in self.key}
        empty = {**dict.fromkeys(columns), **named_key}
        for step in steps:
            values = dict(zip(columns, step[3:], strict=True))
            named = {name: values[name] for name in step.names.split(",") if name}
            records = _after(step.op, records, empty, named)
        return records


def _after(
    op: str, records: list[dict[str, Any]], empty: Mapping[str, Any], named: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if op == _REMOVE:
        return []
    if op == _ADD:
        return [*records, {**empty, **named}]
    return [{**record, **named} for record in records or [{**empty}]]


def _invalid(where: str, message: str) -> DefinitionError:
    return DefinitionError(Mistake("correction_invalid", where, message))
