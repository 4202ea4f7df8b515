"""Records that a stage of the reference engine sets aside, and the order of a give-back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cbp.engine.columnar.values import Row
from cbp.engine.reference.routing import Group, Key
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.set_aside import BEHIND_CODE
from cbp.model.dataflow.stage import TranslatorSpec


@dataclass(frozen=True, slots=True)
class Aside:
    """A record that is set aside.

    Attributes:
        input: Its input; `""` for a call by a timer, which has no record.
        key: The key of its group; `None` for a record that is a group of its own.
        place: The epoch that set it aside, the number of its input, and its position in that input.
    """

    input: str
    key: Key | None
    row: Row
    code: str
    place: tuple[int, int, int] = (0, 0, 0)


@dataclass
class SetAside:
    """The records that one epoch sets aside, and those that were set aside before it.

    Attributes:
        most: How many records can be set aside; `None` if an error fails the epoch.
        given: Input name to records that are read again in this epoch, in their order.
    """

    spec: TranslatorSpec
    most: int | None
    epoch: int
    before: Sequence[Aside] = ()
    given: dict[str, list[Aside]] = field(default_factory=dict)
    new: list[Aside] = field(default_factory=list)
    _places: dict[str, list[int]] = field(default_factory=dict)
    _error: AuthorCodeError | None = None

    @property
    def left_out(self) -> set[Key]:
        """The groups that are not called, since earlier records of these groups wait."""
        return {one.key for one in self.before if one.key is not None}

    def take_group(self, key: Key, group: Group, error: AuthorCodeError | None = None) -> None:
        """Set a group's new records aside; no error means that earlier ones are set aside."""
        if error is not None:
            self._fail(error)
        code = BEHIND_CODE if error is None else error.code
        for input_, records in group.items():
            for order, row in records:
                self._take(Aside(input_, key, row, code), order[-1])
        if error is not None and not any(group.values()):
            calls = [one for one in self.given.get("", ()) if one.key == key]
            again = [replace(one, code=code) for one in calls]
            self.new += again or [Aside("", key, (), code, (self.epoch, len(self.spec.inputs), 0))]

    def take_record(self, input_: str, row: Row, arrival: int, error: AuthorCodeError) -> None:
        """Set aside a record that is a group of its own; raises as `take_group`."""
        self._fail(error)
        self._take(Aside(input_, None, row, error.code), arrival)

    def take_refused(
        self, stage: str, input_: str, every: Sequence[tuple[Row, tuple[str, str]] | None]
    ) -> None:
        """Set aside records without a framing key (code and message); read the others."""
        self._places[input_] = [place for place, one in enumerate(every) if one is None]
        number = self._number(input_)
        for place, one in enumerate(every):
            if one is not None:
                row, (code, message) = one
                function = f"{input_}.frame_by"
                self._fail(AuthorCodeError(stage=stage, function=function, place="", cause=message))
                self.new.append(Aside(input_, None, row, code, (self.epoch, number, place)))

    def after(self) -> list[Aside]:
        """Return the set-aside records after the epoch, in the order of a give-back."""
        every = [*self.before, *self.new]
        # All that is given back can fail again, also once a version has lowered the limit.
        most = None if self.given else self.most
        if self._error is not None and most is not None and len(every) > most:
            raise self._error
        self._error = None  # an error cannot be copied, and callers may copy the stage
        return sorted(every, key=lambda one: one.place)

    def _fail(self, error: AuthorCodeError) -> None:
        if self.most is None:
            raise error
        self._error = self._error or error

    def _take(self, one: Aside, arrival: int) -> None:
        if self.given:
            place = self.given[one.input][arrival].place
        else:
            if one.input in self._places:
                arrival = self._places[one.input][arrival]
            place = (self.epoch, self._number(one.input), arrival)
        self.new.append(replace(one, place=place))

    def _number(self, input_: str) -> int:
        return [one.name for one in self.spec.inputs].index(input_)


def by_input(records: Iterable[Aside]) -> dict[str, list[Aside]]:
    """Return the records of each input, in their order."""
    inputs: dict[str, list[Aside]] = {}
    for one in records:
        inputs.setdefault(one.input, []).append(one)
    return inputs
