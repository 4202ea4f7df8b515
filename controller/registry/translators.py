"""The registry of translators: which ones a document may name, and how they are loaded.

A registration only *names* translators: entry points of the group `cbp.translators` that belong
to a distribution on the operator's list. A module is imported only when a document names it; no
other module is ever imported.

    [project.entry-points."cbp.translators"]
    url_count = "stages.translators.url_count:UrlCount"

Absent on purpose: code in documents, pickles, dotted paths.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cbp.errors import CbpError, DataflowInvalidError, DefinitionError, Mistake
from cbp.errors.message_limits import listed
from cbp.model.author.fingerprint import modules_of
from cbp.model.dataflow.dataflow import Dataflow
from cbp.sdk import dataflow_from_document
from cbp.sdk.declare import place_of
from cbp.sdk.translate import Declared
from controller.registry.loaded import LoadedFiles
from controller.registry.text import parse_document

__all__ = ["GROUP", "Registry", "TranslatorInfo"]

GROUP = "cbp.translators"
NEAR_MAX, NAME_MAX = 3, 100
_BUILT_IN = "cbp"

EntryPoints = Callable[[], Iterable[importlib.metadata.EntryPoint]]


@dataclass(frozen=True, slots=True)
class TranslatorInfo:
    """What an author of a document needs to know to name a translator.

    Attributes:
        parameters: Parameter name -> its declaration, such as `key: str`.
    """

    name: str
    package: str
    summary: str
    parameters: Mapping[str, str]


class Registry:
    """The translators of the allowed packages, by name; safe to use from several threads.

    Args:
        allowed_packages: Names of distributions, in any usual spelling, in addition to this
            one, whose translators are always allowed.
        entry_points: Where to search; by default the installed entry points.
    """

    def __init__(
        self, allowed_packages: Iterable[str], *, entry_points: EntryPoints | None = None
    ) -> None:
        self._allowed = {_canonical(package) for package in allowed_packages} | {_BUILT_IN}
        self._look = entry_points or _installed
        self._points, _ = self._entry_points()
        self._files = LoadedFiles()
        self._modules: dict[str, frozenset[str]] = {}

    def _entry_points(
        self,
    ) -> tuple[dict[str, list[importlib.metadata.EntryPoint]], dict[str, set[str]]]:
        """Return the entry points of allowed packages, and which packages offer others."""
        allowed: dict[str, list[importlib.metadata.EntryPoint]] = {}
        others: dict[str, set[str]] = {}
        for point in self._look():
            if _package(point) not in self._allowed:
                others.setdefault(point.name, set()).add(_package(point))
                continue
            known = allowed.setdefault(point.name, [])
            # An editable install may be listed twice: the same target is not ambiguous.
            if all(one.value != point.value for one in known):
                known.append(point)
        return allowed, others

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
        """Construct the translator of this name with these parameters.

        Raises:
            DefinitionError: Rule `translator_unknown` with the nearest names,
                `translator_ambiguous` if two packages have it, `translator_failed` if its code
                raised, `parameters_invalid` naming the accepted ones, `translator_invalid` if it
                is no translator.
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
        code = modules_of(type(made))
        if not isinstance(factory, type):
            made.made_by = factory
            code |= modules_of(factory)
        self._files.see(code)
        self._modules[name] = code
        return made

    def require_loaded(self, dataflow: Dataflow) -> None:
        """Raise an error if a dataflow's code on disk is not what this process has loaded.

        Otherwise it would be registered with code that is nowhere on disk, and the next start would
        run other code. Only registrations are checked; what already runs goes on.

        Raises:
            DataflowInvalidError: Rule `code_not_loaded`, naming the files.
        """
        offered, _ = self._entry_points()
        mistakes = []
        for name, stage in dataflow.stages.items():
            changed = [
                *self._files.changed(self._modules.get(stage.reference, ())),
                *_pointed_elsewhere(
                    self._points[stage.reference], offered.get(stage.reference, [])
                ),
            ]
            if changed:
                message = (
                    f"what is installed is not what the service has loaded: {', '.join(changed)} "
                    "changed since; restart the service, then register"
                )
                mistakes.append(Mistake("code_not_loaded", f"stages.{name}.translator", message))
        if mistakes:
            raise DataflowInvalidError(dataflow.name, mistakes)

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
            message = f"is offered by {packages}; allow only one of them, or rename one"
            raise _wrong(message, rule="translator_ambiguous", where=name)
        try:
            factory = points[0].load()
        except Exception as error:  # importing an author's module may raise anything
            message = f"cannot be imported from {points[0].value}: {type(error).__name__}: {error}"
            raise _wrong(message, rule="translator_failed", where=name) from error
        self._files.see({getattr(factory, "__module__", None) or points[0].value})
        try:
            inspect.signature(factory)
        except (TypeError, ValueError) as error:  # not callable, or without a signature
            message = f"{points[0].value} is a {type(factory).__name__}, not a translator class"
            raise _wrong(message, rule="translator_invalid", where=name) from error
        return factory, points[0]

    def _unknown(self, name: str) -> str:
        now, others = self._entry_points()
        if name in now:
            message = f"{name!r} was installed after the service had started"
            return f"{message}; restart the service, then register"
        if name in others:
            packages = ", ".join(sorted(others[name]))
            message = f"{name!r} is offered by {packages}, which is not allowed"
            return f"{message}: add the package to CBP_ALLOWED_PACKAGES and restart the service"
        # The search is quadratic in the length of the name.
        near = difflib.get_close_matches(name[:NAME_MAX], self._points, n=NEAR_MAX)
        if near:
            return f"there is no translator {name!r}; did you mean {' or '.join(near)}?"
        known = listed(self.names()) or "none: no allowed package offers any"
        return f"there is no translator {name!r}; there is {known}"


def _pointed_elsewhere(
    loaded: Iterable[importlib.metadata.EntryPoint], now: Iterable[importlib.metadata.EntryPoint]
) -> Iterator[str]:
    """Yield the entry points that have changed since the service started."""
    was, is_ = ({point.name: point.value for point in points} for points in (loaded, now))
    for name, value in was.items():
        if is_.get(name) != value:
            yield f"the entry point {name} ({value} -> {is_.get(name, 'none')})"


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
