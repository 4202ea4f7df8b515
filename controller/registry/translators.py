"""Which translators a document may name, and how its text is read.

A registration only *names* translators: entry points of the group
`cbp.translators` that belong to a distribution on the operator's list. Nothing
is imported before a document names it, and nothing else is ever imported.

    [project.entry-points."cbp.translators"]
    url_count = "stages.translators.url_count:UrlCount"

Absent on purpose: code in documents, pickles, dotted paths.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cbp.errors import CbpError, DefinitionError, Mistake
from cbp.model.dataflow import Dataflow
from cbp.sdk import dataflow_from_document
from cbp.sdk.declare import place_of
from cbp.sdk.translate import Declared
from controller.registry.text import parse_document

__all__ = ["GROUP", "Registry", "TranslatorInfo"]

GROUP = "cbp.translators"
NEAR_MAX = 3

EntryPoints = Callable[[], Iterable[importlib.metadata.EntryPoint]]


@dataclass(frozen=True, slots=True)
class TranslatorInfo:
    """What a document needs to know in order to name a translator.

    Attributes:
        parameters: Parameter name to how it is declared, such as `key: str`.
    """

    name: str
    package: str
    summary: str
    parameters: Mapping[str, str]


class Registry:
    """The translators of the allowed packages, by name; safe to use from several threads.

    Args:
        allowed_packages: Names of distributions, spelled in any of the usual ways.
        entry_points: Where to look; by default what is installed.
    """

    def __init__(
        self, allowed_packages: Iterable[str], *, entry_points: EntryPoints | None = None
    ) -> None:
        allowed = {_canonical(package) for package in allowed_packages}
        found = (entry_points or _installed)()
        self._points: dict[str, list[importlib.metadata.EntryPoint]] = {}
        for point in found:
            known = self._points.setdefault(point.name, [])
            # An editable install may be listed twice: the same target is no ambiguity.
            if _package(point) in allowed and all(p.value != point.value for p in known):
                known.append(point)
        self._points = {name: points for name, points in self._points.items() if points}

    def names(self) -> tuple[str, ...]:
        """Return the names that a document may use, sorted."""
        return tuple(sorted(self._points))

    def describe(self, name: str) -> TranslatorInfo:
        """Return what is known of one translator; imports its module.

        Raises:
            DefinitionError: See `resolve`.
        """
        factory, point = self._load(name)
        summary = (inspect.getdoc(factory) or "").partition("\n")[0]
        parameters = inspect.signature(factory).parameters
        shown = {name: str(parameter) for name, parameter in parameters.items()}
        return TranslatorInfo(name, _package(point), summary, shown)

    def resolve(self, name: str, parameters: Mapping[str, Any]) -> Declared:
        """Make the translator of this name with these parameters.

        Raises:
            DefinitionError: Rule `translator_unknown` with the nearest names,
                `translator_ambiguous` when two packages have it, `translator_failed`
                when its code raised, `parameters_invalid` naming the accepted ones,
                `translator_invalid` when it is no translator.
        """
        factory, _ = self._load(name)
        place = place_of(factory)
        _check_parameters(name, factory, parameters)
        try:
            made = factory(**parameters)
        except CbpError:
            raise
        except Exception as error:  # author's code may raise anything
            message = f"cannot be made with these parameters: {type(error).__name__}: {error}"
            raise _wrong(message, rule="translator_failed", where=name, place=place) from error
        if not isinstance(made, Declared):
            message = f"makes a {type(made).__name__}, which is no kind of translator"
            raise _wrong(message, rule="translator_invalid", where=name, place=place)
        return made

    def compile(self, document: Any, duplicates: Iterable[str] = ()) -> Dataflow:
        """Read and check a document; see `cbp.sdk.dataflow_from_document`.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
        """
        return dataflow_from_document(document, self.resolve, duplicates=duplicates)

    def parse_document(
        self, text: str, content_type: str
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Read the text of a document; see `controller.registry.text.parse_document`."""
        return parse_document(text, content_type)

    def _load(self, name: str) -> tuple[Callable[..., Any], importlib.metadata.EntryPoint]:
        points = self._points.get(name, [])
        if not points:
            raise _wrong(self._unknown(name), rule="translator_unknown", where=name)
        if len(points) > 1:
            packages = ", ".join(sorted(_package(point) for point in points))
            message = f"is offered by {packages}; allow only one of them"
            raise _wrong(message, rule="translator_ambiguous", where=name)
        try:
            factory = points[0].load()
        except Exception as error:  # importing an author's module may raise anything
            message = f"cannot be imported from {points[0].value}: {type(error).__name__}: {error}"
            raise _wrong(message, rule="translator_failed", where=name) from error
        try:
            inspect.signature(factory)
        except (TypeError, ValueError) as error:  # no callable, or one that cannot be looked at
            message = f"{points[0].value} is a {type(factory).__name__}, not a translator class"
            raise _wrong(message, rule="translator_invalid", where=name) from error
        return factory, points[0]

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._points, n=NEAR_MAX)
        if near:
            return f"there is no translator {name!r}; did you mean {' or '.join(near)}?"
        known = ", ".join(self.names()) or "none: no allowed package offers any"
        return f"there is no translator {name!r}; there is {known}"


def _check_parameters(
    name: str, factory: Callable[..., Any], parameters: Mapping[str, Any]
) -> None:
    accepted = inspect.signature(factory).parameters
    try:
        inspect.signature(factory).bind(**parameters)
    except TypeError as error:
        takes = ", ".join(map(str, accepted.values())) or "no parameters"
        message = f"{error}; it takes {takes}"
        raise _wrong(
            message, rule="parameters_invalid", where=name, place=place_of(factory)
        ) from error


def _installed() -> Iterable[importlib.metadata.EntryPoint]:
    return importlib.metadata.entry_points(group=GROUP)


def _package(point: importlib.metadata.EntryPoint) -> str:
    return _canonical(point.dist.name) if point.dist is not None else ""


def _canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _wrong(message: str, *, rule: str, where: str, place: str = "") -> DefinitionError:
    return DefinitionError(Mistake(rule, where, message, place))
