"""The registry of translators: which ones a document may name, and how they are loaded.

A registration only *names* translators: entry points of the group `cbp.translators` that belong
to a distribution on the operator's list, and classes of files that the service was started with
(`controller.registry.translator_files`). A module of a package is imported only when a document
names it; no other module is ever imported.

    [project.entry-points."cbp.translators"]
    url_count = "stages.translators.url_count:UrlCount"

Absent on purpose: code in documents, pickles, dotted paths.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cbp.errors import CbpError, DataflowInvalidError, DefinitionError, Mistake
from cbp.errors.message_limits import listed
from cbp.model.author.code_fingerprint import modules_of
from cbp.model.author.source_modules import travelling
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.sdk.declare import place_of
from cbp.sdk.document import LATER_RULES, dataflow_from_document
from cbp.sdk.translate import Declared, spec_of
from controller.registry import ready_dataflows
from controller.registry.loaded_files import LoadedFiles
from controller.registry.ready_dataflows import ReadyDataflow, load_ready
from controller.registry.translator_files import TranslatorFiles, author_of, changed_files
from controller.registry.translator_paths import canonical_name

GROUP = "cbp.translators"
NEAR_MAX, NAME_MAX = 3, 100
_BUILT_IN = "cbp"

EntryPoints = Callable[[], Iterable[importlib.metadata.EntryPoint]]


@dataclass(frozen=True, slots=True)
class TranslatorInfo:
    """The facts that an author of a document needs to use a translator.

    Attributes:
        parameters: Parameter name -> its declaration, such as `key: str`.
        spec: `None` if its inputs and outputs depend on parameters without default.
    """

    name: str
    package: str
    description: str
    parameters: Mapping[str, str]
    spec: TranslatorSpec | None = None

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.partition("\n")[0]


class Registry:
    """The translators of the allowed packages, by name; safe to use from several threads.

    Those of this distribution are always allowed. `allowed_packages` are names of further
    distributions, in any usual spelling.
    """

    def __init__(
        self,
        allowed_packages: Iterable[str],
        *,
        entry_points: EntryPoints | None = None,
        files: TranslatorFiles | None = None,
    ) -> None:
        self.translator_files = files or TranslatorFiles(())
        self._allowed = {canonical_name(package) for package in allowed_packages} | {_BUILT_IN}
        self._look = entry_points or partial(_installed, GROUP)
        self._look_ready = partial(_installed, ready_dataflows.GROUP)
        self._points, _ = self._entry_points()
        self._loaded = LoadedFiles()
        self._modules: dict[str, frozenset[str]] = {}
        self._on_disk: dict[tuple[str, str], tuple[int, TranslatorSpec | None]] = {}

    def _entry_points(
        self,
    ) -> tuple[dict[str, list[importlib.metadata.EntryPoint]], dict[str, set[str]]]:
        """Return the entry points of allowed packages, and which packages offer others."""
        allowed: dict[str, list[importlib.metadata.EntryPoint]] = {}
        others: dict[str, set[str]] = {}
        points = list(self._look())
        # Ask each distribution once for its name, since it parses its metadata for that.
        names = {
            id(point.dist): _package(point) for point in {id(p.dist): p for p in points}.values()
        }
        for point in points:
            package = names[id(point.dist)]
            if package not in self._allowed:
                others.setdefault(point.name, set()).add(package)
                continue
            known = allowed.setdefault(point.name, [])
            # An editable install may be listed twice: the same target is not ambiguous.
            if all(one.value != point.value for one in known):
                known.append(point)
        return allowed, others

    def names(self) -> tuple[str, ...]:
        """Return the names that a document may use, sorted."""
        return tuple(sorted({*self._points, *self.translator_files.names()}))

    def describe(self, name: str) -> TranslatorInfo:
        """Return the facts about one translator; imports its module."""
        factory, package = self._load(name)
        description = inspect.getdoc(factory) or ""
        parameters = inspect.signature(factory).parameters
        shown = {name: str(parameter) for name, parameter in parameters.items()}
        needed = any(one.default is one.empty for one in parameters.values())
        spec = None if needed else spec_of(self.resolve(name, {}))
        return TranslatorInfo(name, package, description, shown, spec)

    def ready_dataflows(self, name: str | None = None) -> list[ReadyDataflow]:
        """Return the ready documents of allowed packages, by name. Raises `NotFoundError`."""
        points = [(one, _package(one)) for one in self._look_ready()]
        return load_ready([one for one in points if one[1] in self._allowed], name)

    def resolve(self, name: str, parameters: Mapping[str, Any]) -> Declared:
        """Construct the translator of this name with these parameters.

        Raises `DefinitionError`, with one of the rules `translator_unknown` (naming the nearest
        names), `translator_ambiguous` (two packages have the name), `translator_failed` (its code
        raised an error), `parameters_invalid` (naming the accepted ones) and `translator_invalid`
        (it is not a translator).
        """
        factory, _ = self._load(name)
        place = place_of(factory)
        _check_parameters(name, factory, parameters)
        try:
            made = factory(**parameters)
        except CbpError:
            raise
        except Exception as error:  # author's code may raise anything
            message = f"raised an error for these parameters: {type(error).__name__}: {error}"
            raise _wrong(message, rule="translator_failed", where=name, place=place) from error
        if not isinstance(made, Declared):
            message = f"returned a {type(made).__name__}, expected a translator"
            raise _wrong(message, rule="translator_invalid", where=name, place=place)
        code = modules_of(type(made))
        if not isinstance(factory, type):
            made.made_by = factory
            code |= modules_of(factory)
        self._loaded.see(one for one in code if not self.translator_files.owns(one))
        self._modules[name] = code
        return made

    def newer_files(self, dataflow: Dataflow, stage: str) -> list[str]:
        """Return the files of a stage's code that changed since that code was loaded.

        If the changed files are loaded by now and the stage's code is the same, the list is empty:
        only a comment or an import changed, for example.
        """
        node = dataflow.stages[stage]
        own = author_of(node.translator.translate)
        if (origin := travelling(own)) is not None:
            files = changed_files(origin, modules_of(own))
            return [] if files and self._is_equal_on_disk(node) else files
        return list(self._loaded.changed(self._modules.get(node.reference, ())))

    def _is_equal_on_disk(self, node: StageNode) -> bool:
        """Return whether the files on disk are loaded by now, and a stage's code is the same.

        Returns `False` while files are being loaded, since an author's import may take long.
        """
        with self.translator_files.unless_loading() as settled:
            spec = self._spec_on_disk(node) if settled else None
        if spec is None:
            return False
        own = author_of(spec.translate)
        origin = travelling(own)
        if origin is None or changed_files(origin, modules_of(own)):
            return False
        return bool(spec.code.text) and spec.code == node.translator.code

    def _spec_on_disk(self, node: StageNode) -> TranslatorSpec | None:
        """Return a stage's declaration in the files that were loaded last; `None` if it is invalid.

        An author's translator is constructed once for each load, however often this is called.
        """
        key, loads = (node.reference, repr(node.parameters)), self.translator_files.loads
        known = self._on_disk.get(key)
        if known is None or known[0] != loads:
            try:
                made = self.resolve(node.reference, node.parameters)
                known = loads, spec_of(made, LATER_RULES)
            except CbpError:
                known = loads, None
            self._on_disk[key] = known
        return known[1]

    def require_loaded(self, dataflow: Dataflow) -> None:
        """Raise an error if a dataflow's code on disk differs from the loaded code.

        Otherwise it would be registered with code that no longer exists on disk, and the next
        start would run other code. Only registrations are checked; registered dataflows
        continue.

        Raises `DataflowInvalidError`, rule `code_not_loaded`, naming the files.
        """
        offered, _ = self._entry_points()
        mistakes = []
        for name, stage in dataflow.stages.items():
            loaded = self._points.get(stage.reference, ())
            now = offered.get(stage.reference, ())
            changed = [*self.newer_files(dataflow, name), *_pointed_elsewhere(loaded, now)]
            if changed:
                of_files = self.translator_files.find(stage.reference) is not None
                then = "register again" if of_files else "restart the service, then register again"
                message = (
                    "the service runs older code than the installed code, which differs in "
                    f"{', '.join(changed)}; {then}"
                )
                mistakes.append(Mistake("code_not_loaded", f"stages.{name}.translator", message))
        if mistakes:
            raise DataflowInvalidError(dataflow.name, mistakes)

    def compile(self, document: Any, duplicates: Iterable[str] = ()) -> Dataflow:
        """Read and check a document; see `cbp.sdk.document.dataflow_from_document`.

        Translator files that have changed on disk are loaded first. Raises `DataflowInvalidError`.
        """
        self.translator_files.refresh()
        return dataflow_from_document(document, self._resolve_current, duplicates=duplicates)

    def _resolve_current(self, name: str, parameters: Mapping[str, Any]) -> Declared:
        """Resolve a name to the code on disk; raises if that code could not be loaded."""
        if name not in self._points and (problem := self.translator_files.problem_of(name)):
            raise problem
        return self.resolve(name, parameters)

    def compile_registered(
        self, document: Any, fits: Callable[[Dataflow], bool] = lambda _: True
    ) -> Dataflow:
        """Read a registered document, perhaps of an earlier release with weaker rules.

        Translator files are loaded again only if the loaded code does not fit.

        Args:
            fits: Returns whether the loaded code is that of the registered version. If not, or
                if it cannot be compiled, changed files are loaded: an instance that takes over
                may have loaded them before another one registered them.

        Raises `DataflowInvalidError` as `compile`, except for mistakes of `LATER_RULES`.
        """
        try:
            dataflow = self._compile_loaded(document)
        except DataflowInvalidError:
            if not self._has_renewed():
                raise
        else:
            if fits(dataflow) or not self._has_renewed():
                return dataflow
        return self._compile_loaded(document)

    def renew(self) -> int:
        """See `TranslatorFiles.renew`."""
        return self.translator_files.renew()

    def _has_renewed(self) -> bool:
        return self.translator_files.loads != self.renew()

    def _compile_loaded(self, document: Any) -> Dataflow:
        try:
            return dataflow_from_document(document, self.resolve)
        except DataflowInvalidError as error:
            if {mistake.code for mistake in error.mistakes}.isdisjoint(LATER_RULES):
                raise
            return dataflow_from_document(document, self.resolve, without=LATER_RULES)

    def _load(self, name: str) -> tuple[Callable[..., Any], str]:
        """Return the factory of the translator of this name, and its package or file."""
        points, of_file = self._points.get(name, []), self.translator_files.find(name)
        if not points and of_file is None:
            if problem := self.translator_files.problem_of(name):
                raise problem
            raise _wrong(self._unknown(name), rule="translator_unknown", where=name)
        offers = [_package(point) for point in points] + ([of_file[1]] if of_file else [])
        if len(offers) > 1:
            packages = ", ".join(sorted(offers))
            what = "allow only one of them (CBP_ALLOWED_PACKAGES), or rename one translator"
            if of_file is not None:
                what = f"rename the translator of {of_file[1]}"
            message = f"is offered by {packages}; {what}"
            raise _wrong(message, rule="translator_ambiguous", where=name)
        factory = of_file[0] if of_file else self._imported(name, points[0])
        try:
            inspect.signature(factory)
        except (TypeError, ValueError) as error:  # not callable, or without a signature
            message = f"expected a translator class, got a {type(factory).__name__}"
            raise _wrong(message, rule="translator_invalid", where=name) from error
        return factory, offers[0]

    def _imported(self, name: str, point: importlib.metadata.EntryPoint) -> Callable[..., Any]:
        try:
            factory: Callable[..., Any] = point.load()
        except Exception as error:  # importing an author's module may raise anything
            message = f"cannot be imported from {point.value}: {type(error).__name__}: {error}"
            raise _wrong(message, rule="translator_failed", where=name) from error
        self._loaded.see({getattr(factory, "__module__", None) or point.value})
        return factory

    def _unknown(self, name: str) -> str:
        now, others = self._entry_points()
        if name in now:
            message = f"{name!r} was installed after the service had started"
            return f"{message}; restart the service, then register again"
        if name in others:
            packages = ", ".join(sorted(others[name]))
            message = f"{name!r} is offered by {packages}, which is not allowed"
            return f"{message}: add the package to CBP_ALLOWED_PACKAGES and restart the service"
        # The search is quadratic in the length of the name.
        names = self.names()
        near = difflib.get_close_matches(name[:NAME_MAX], names, n=NEAR_MAX) or [
            one for one in names if _spelled(one) == _spelled(name)
        ]
        if near:
            return f"there is no translator {name!r}; did you mean {' or '.join(near)}?"
        use = f"use one of {listed(names)}" if names else "allow a package (CBP_ALLOWED_PACKAGES)"
        if name == name.lower() and ":" not in name:
            return f"there is no translator {name!r}; {use}"
        return (
            f"there is no translator {name!r}; if this is a class in your own file, start the "
            f"service with `cbp serve --translators FILE.py`; otherwise {use}"
        )


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
        message = f"{error}; the translator takes {takes}"
        place = place_of(factory)
        raise _wrong(message, rule="parameters_invalid", where=name, place=place) from error


def _installed(group: str) -> Iterable[importlib.metadata.EntryPoint]:
    return importlib.metadata.entry_points(group=group)


def _package(point: importlib.metadata.EntryPoint) -> str:
    return canonical_name(point.dist.name) if point.dist is not None else ""


def _spelled(name: str) -> str:
    """Return a form of a name that is the same for `UrlCount` and `url_count`."""
    return name.rpartition(":")[2].replace("_", "").lower()


def _wrong(message: str, *, rule: str, where: str, place: str = "") -> DefinitionError:
    return DefinitionError(Mistake(rule, where, message, place))
