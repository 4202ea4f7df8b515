"""The run that calls an author's code, as that code sees it: epoch, recorded time, frames.

    group.run.epoch           number of the epoch, from 0
    group.run.time            time of the run, aware and in UTC, as its intention records it
    group.run.frame("urls")   label of the frame that the run reads from an input

The values belong to the run and not to the machine: every task of a run sees the same values, and
so does every repetition of the run (`cbp.engine.read.recomputed_epochs`). The clock of a machine
guarantees neither.

Source: ours; frames: CBP (SoCC'10), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NoReturn

from cbp.errors import AuthorMisuse, RunContextHiddenError
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.increment import FramingKey, Increment

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(time_ms: int) -> datetime:
    """Return a time in milliseconds since 1970 as an aware time in UTC."""
    return _BEGIN + timedelta(milliseconds=time_ms)


def microseconds(time: datetime) -> int:
    """Return an aware time as microseconds since 1970, as a TIMESTAMP column holds it."""
    return (time - _BEGIN) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run, as the author's code sees it.

    Attributes:
        time: When the run was started: aware, in UTC, in whole milliseconds. It rises from epoch
            to epoch of a stage, even if the clock of the machine is set back.
        aggregates: In a loop: the aggregates of the previous superstep, `None` in the first one.
    """

    epoch: int = 0
    time: datetime = _BEGIN
    _frames: Mapping[str, tuple[FramingKey, ...]] = field(default_factory=dict)
    aggregates: Mapping[str, float | None] = field(default_factory=dict)

    def frames(self, input_: str) -> tuple[FramingKey, ...]:
        """Return the labels of the frames that the run reads from an input, in order.

        An input without `frame_by` has none; a `ValueError` says which inputs there are.
        """
        if input_ not in self._frames:
            names = ", ".join(self._frames)
            message = f"group.run.frame: there is no input {input_!r}; use one of {names}"
            raise ValueError(message)
        return self._frames[input_]

    def frame(self, input_: str) -> FramingKey | None:
        """Return the label of the frame that the run reads, if any; `ValueError` if several."""
        labels = self.frames(input_)
        if len(labels) > 1:
            message = (
                f"group.run.frame: the run reads {len(labels)} frames of {input_!r}; use "
                f"group.run.frames({input_!r})"
            )
            raise ValueError(message)
        return labels[0] if labels else None


NO_RUN = RunContext()
"""The context of a call that belongs to no run, as in tests of single parts."""


def context_of(
    spec: TranslatorSpec,
    *,
    epoch: int,
    time: datetime,
    inputs: Mapping[str, Iterable[Increment]] = MappingProxyType({}),
) -> RunContext:
    """Return the context of a run; only inputs with `frame_by` have frames."""
    frames = {
        one.name: tuple(i.framing_key for i in inputs.get(one.name, ()) if one.frame_by is not None)
        for one in (*spec.inputs, *spec.absent)
    }
    return RunContext(epoch, time, frames)


def hidden() -> AuthorMisuse:
    """Return the error of author's code that reads `run`, but is not given one."""
    message = (
        "group.run (groups.run) can be read only in methods of the translator's class: read it "
        "there, and pass the values to other functions. In SQL, the run is a table: SELECT ... "
        "FROM run"
    )
    return AuthorMisuse(RunContextHiddenError, message)


def _refuse(_: object) -> NoReturn:
    raise hidden()


HIDDEN = property(_refuse)
"""The attribute `run` of groups whose translator does not read it, as far as its code shows."""
