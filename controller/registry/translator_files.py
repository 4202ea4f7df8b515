"""Translators of plain files, which documents can name after `cbp serve --translators PATH`.

    clicks.py               its classes: `UrlCount`, or `clicks:UrlCount`
    flows/                  the same for each file in it that imports `cbp`
    shop/pyproject.toml     a project: the names of its entry points `cbp.translators`

A file is loaded when a name is first needed. If it has changed, it is loaded again when a document
is checked, so that a registration uses the code on disk; or when the loaded code is not that of a
registered version (`renew`). Registered versions continue with their code. If the new code cannot
be loaded, the old code stays, and documents that name it are refused with the author's file and
line. A file that cannot be loaded at the start stops no dataflow of another file.

Guaranteed (tests/controller/registry/test_translator_files.py): a file is read once per loading, so
the same text runs, is fingerprinted, and is sent to workers.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from cbp.errors import DefinitionError, Mistake, is_authors, text_of
from cbp.errors.advice import advice
from cbp.errors.message_limits import listed
from cbp.model.author.code_fingerprint import modules_of
from cbp.model.author.source_modules import (
    SourceModule,
    SourceSet,
    Travelling,
    load_sources,
    travelling,
)
from cbp.sdk.declare import place_of
from cbp.sdk.translate import Declared
from controller.registry.loaded_files import Signature, file_signature
from controller.registry.translator_paths import (
    PROJECT,
    GivenPath,
    given_path,
    is_current,
    is_taken,
    module_file,
    read_module,
    translators_mistake,
)

Factory = Callable[..., Any]

RENEW_SECONDS = 1.0


class TranslatorFiles:
    """Translators of files and folders, by name; safe to use from several threads.

    Raises `DefinitionError`, rule `translators_path_invalid`, if a path is no such file or folder,
    or has the name of another module.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._lock = threading.RLock()
        by_root: dict[Path, list[GivenPath]] = {}
        for path in paths:
            given = given_path(Path(os.path.abspath(path)))
            by_root.setdefault(given.root, []).append(given)
        self._folders = [_Folder(root, given) for root, given in by_root.items()]
        _check_names(self._folders)

    def names(self) -> dict[str, str]:
        """Return each name that a document may use, and its file or project.

        Files that cannot be loaded have no names; `problems` returns the reasons.
        """
        with self._lock:
            every = [pair for one in self._folders for pair in one.names()]
        short = [name.rpartition(":")[2] for name, _ in every]
        return {
            name if short.count(name.rpartition(":")[2]) > 1 else name.rpartition(":")[2]: shown
            for name, shown in every
        }

    def problems(self) -> list[DefinitionError]:
        """Return why files on disk, in their present version, could not be loaded."""
        with self._lock:
            for one in self._folders:
                one.load()
            problems = [(one.problem, one.missing) for one in self._folders]
            return [problem for pair in problems for problem in pair if problem is not None]

    def find(self, name: str) -> tuple[Factory, str] | None:
        """Return the factory of the translator of this name, and its file or project.

        Raises `DefinitionError`, rule `translator_ambiguous`, if several files have the name.
        """
        with self._lock:
            matches = {
                (shown, full): factory
                for folder in self._folders
                for full, shown, factory in folder.matches(name)
            }
        if len(matches) > 1:
            message = f"is in several files; write one of {listed(sorted(n for _, n in matches))}"
            raise translators_mistake(message, "translator_ambiguous", name)
        return next(((factory, shown) for (shown, _), factory in matches.items()), None)

    def refresh(self) -> None:
        """Load files that have changed on disk since they were loaded."""
        self._load_changed(self._folders)

    def renew(self) -> int:
        """Load files that have changed on disk since the last attempt; return `loads`.

        Unlike `refresh`, it reads no file that is unchanged since the last attempt. It waits at
        most `RENEW_SECONDS` for an author's import, which continues in its thread. So a loop may
        call it.
        """
        with self.unless_loading() as is_free:
            changed = [folder for folder in self._folders if folder.is_changed()] if is_free else []
        if changed:
            load = partial(self._load_changed, changed)
            thread = threading.Thread(target=load, name="renew-code", daemon=True)
            thread.start()
            thread.join(RENEW_SECONDS)
        return self.loads

    def _load_changed(self, folders: Iterable[_Folder]) -> None:
        with self._lock:
            for folder in folders:
                folder.load(anew=True)

    @contextmanager
    def unless_loading(self) -> Iterator[bool]:
        """Prevent loading in the block; yield `False` at once if files are being loaded now."""
        free = self._lock.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    @property
    def loads(self) -> int:
        """Number of times that files were loaded."""
        return sum(folder.loads for folder in self._folders)

    def problem_of(self, name: str) -> DefinitionError | None:
        """Return why the file that may define a name could not be loaded in its present version."""
        with self._lock:
            for folder in self._folders:
                matches = [*folder.matches(name)]
                is_known = bool(matches) or self._is_known(name)
                if folder.problem is not None and (matches or not is_known):
                    return folder.problem
                if folder.missing is not None and not is_known:
                    return folder.missing
                if not is_known and (problem := folder.underived(name)) is not None:
                    return problem
        return None

    def _is_known(self, name: str) -> bool:
        return any([*folder.matches(name)] for folder in self._folders)

    def owns(self, module: str) -> bool:
        """Return whether a module was loaded from these files."""
        with self._lock:
            return any(one.sources is not None and one.sources.has(module) for one in self._folders)

    def paths(self) -> list[str]:
        """Return the loaded files, and the files that were named."""
        with self._lock:
            return sorted({path for one in self._folders for path in one.paths()})


class _Folder:
    """The given files of one folder, or one project; its modules are loaded together."""

    def __init__(self, root: Path, given: list[GivenPath]) -> None:
        self.root, self.given = root, given
        self.sources: SourceSet | None = None
        self.problem: DefinitionError | None = None
        self.missing: DefinitionError | None = None
        self.loads = 0
        self._tried: Mapping[str, Signature | None] | None = None
        self._targets: dict[str, str] = {}
        self._modules: dict[str, ModuleType] = {}
        self._by_name: dict[str, tuple[str, Factory]] = {}

    def load(self, *, anew: bool = False) -> None:
        """Load modules that are not loaded; with `anew`, also those whose files have changed."""
        if not anew and (self.sources is not None or self.problem is not None):
            return
        targets: dict[str, str] = {}
        try:
            for given in self.given:
                targets |= given.targets()
            others = self.sources is None or targets != self._targets
            if others or not all(map(is_current, self._loaded())):
                self.missing = self._load(targets)
            self.problem = None  # loaded now, or the files are again those that are loaded
        except BaseException as error:  # importing an author's module may raise anything
            self.problem = self._problem_of(error)
            if self.sources is None:
                self._load_sound(targets)

    def _load_sound(self, targets: Mapping[str, str]) -> None:
        """Load the files that can be loaded, so that dataflows registered from them continue."""
        roots = {target.partition(":")[0] for target in targets.values()}
        sound = {root for root in roots if self._is_sound(root)} if len(roots) > 1 else ()
        some = {name: one for name, one in targets.items() if one.partition(":")[0] in sound}
        try:
            self.missing = self._load(some) if some else None
        except BaseException as error:  # each file loads alone, but not with the others
            self.problem = self._problem_of(error)

    def _is_sound(self, root: str) -> bool:
        try:
            load_sources(str(self.root), partial(read_module, self.root), [root])
        except BaseException as error:  # as above
            self._problem_of(error)
            return False
        return True

    def _problem_of(self, error: BaseException) -> DefinitionError:
        """Return why the files could not be loaded; raises an error that is not the author's."""
        if isinstance(error, DefinitionError):
            return error
        if not is_authors(error):
            raise error
        return _import_problem(self.root, self.given[0].shown, error)

    def is_changed(self) -> bool:
        """Return whether a file has changed since the last call, or this is the first call."""
        before = self._tried
        self._tried = {path: file_signature(path) for path in self.paths()}
        return self._tried != before

    def _load(self, targets: dict[str, str]) -> DefinitionError | None:
        """Load the modules again; return the mistake if a name has no object."""
        roots = sorted({target.partition(":")[0] for target in targets.values()})
        self.sources = load_sources(str(self.root), partial(read_module, self.root), roots)
        self.loads += 1
        self._targets = targets
        self._modules = {root: sys.modules[root] for root in roots}
        self._by_name, problem = {}, None
        for name, target in targets.items():
            root, _, attribute = target.partition(":")
            if not attribute:
                for class_ in _classes(self._modules[root]):
                    self._by_name[f"{root}:{class_.__name__}"] = f"{root}.py", class_
            elif (thing := _attribute(self._modules[root], attribute)) is not None:
                self._by_name[name] = self.given[0].shown, thing
            else:
                message = f"{PROJECT} names {target}, but {root} does not define {attribute}"
                problem = translators_mistake(message, "translator_failed", name)
        return problem

    def _loaded(self) -> tuple[SourceModule, ...]:
        return () if self.sources is None else self.sources.modules

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield `file:Class`, or the name of an entry point, with its file or project."""
        self.load()
        yield from ((name, shown) for name, (shown, _) in self._by_name.items())

    def matches(self, name: str) -> Iterator[tuple[str, str, Factory]]:
        """Yield the meanings of a name: full name, file or project, and factory."""
        self.load()
        for full, (shown, factory) in self._by_name.items():
            if name in (full, full.rpartition(":")[2]):
                yield full, shown, factory
        root, colon, attribute = name.partition(":")
        if colon and name not in self._by_name and self._targets.get(root) == root:
            thing = _attribute(self._modules[root], attribute)
            if thing is not None:  # such as a function that makes a translator
                yield name, f"{root}.py", thing

    def underived(self, name: str) -> DefinitionError | None:
        """Return the mistake in a class of this name that is not a translator, if any."""
        for root, module in self._modules.items():
            class_ = vars(module).get(name)
            if isinstance(class_, type) and class_.__module__ == root:
                message = (
                    "is a class but not a translator; derive it from cbp.Translate, "
                    "TranslateRecords, TranslateArrow, TranslateRun or TranslateSql"
                )
                mistake = Mistake("translator_invalid", name, message, place_of(class_))
                return DefinitionError(mistake)
        return None

    def paths(self) -> Iterator[str]:
        """Yield the files that were loaded, and those that were named."""
        yield from (module.path for module in self._loaded())
        for given in self.given:
            if given.project is not None:
                yield str(given.project / PROJECT)
            yield from map(str, given.files())


def author_of(translate: Callable[..., object]) -> Any:
    """Return the class of the translator that a function belongs to, or the function."""
    owner = getattr(translate, "__self__", None)
    return translate if owner is None else type(owner)


def code_files(translate: Callable[..., object]) -> frozenset[str]:
    """Return the files with the code of the translator that a function belongs to."""
    own = author_of(translate)
    modules = modules_of(own)
    if (origin := travelling(own)) is not None:
        return frozenset(module.path for module in origin[1] if module.name in modules)
    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return frozenset(file for file in files if file)


def changed_files(origin: Travelling, modules: Collection[str]) -> list[str]:
    """Return the files of these modules that have changed since an object was loaded."""
    return sorted(
        module.path for module in origin[1] if module.name in modules and not is_current(module)
    )


def _check_names(folders: Iterable[_Folder]) -> None:
    """Refuse a module if Python would import another module of the same name instead."""
    seen: dict[str, Path] = {}
    for folder in folders:
        targets = [target for given in folder.given for target in given.targets().values()]
        for top in {target.partition(":")[0].partition(".")[0] for target in targets}:
            path = module_file(folder.root, top)
            other = seen.setdefault(top, folder.root)
            if other != folder.root:
                where = f"is in {other} and in {folder.root}"
            elif is_taken(top, path):
                where = "is also the name of an installed module"
            else:
                continue
            message = f"the module {top} {where}; rename {path or top}"
            raise translators_mistake(message, "translators_path_invalid", "translators")


def _classes(module: ModuleType) -> list[type]:
    """Return a module's own translators."""
    return [
        thing
        for name, thing in vars(module).items()
        if isinstance(thing, type)
        and issubclass(thing, Declared)
        and thing.__module__ == module.__name__
        and name == thing.__name__
        and not name.startswith("_")
        and not inspect.isabstract(thing)
    ]


def _attribute(module: ModuleType, name: str) -> Factory | None:
    thing: Any = module
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing if callable(thing) else None


def _import_problem(root: Path, shown: str, error: BaseException) -> DefinitionError:
    """Say why author's code cannot be imported, with its file and line."""
    if isinstance(error, SyntaxError) and error.filename:
        place, why = f"{error.filename}:{error.lineno}", f"{type(error).__name__}: {error.msg}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [one for one in frames if Path(one.filename).is_relative_to(root)]
        place = f"{inside[-1].filename}:{inside[-1].lineno}" if inside else ""
        why = f"{type(error).__name__}: {text_of(error)}"
    message = f"cannot be imported: {why}"
    if isinstance(error, ModuleNotFoundError):
        message += f"; install the package for the service: {sys.executable} -m pip install"
        message += f" {(error.name or 'PACKAGE').partition('.')[0]}"
    elif what := advice(error, text_of(error), {}):
        message += f"; {what}"
    elif isinstance(error, SystemExit):
        message += "; move code that is only for `python FILE` below `if __name__ == '__main__':`"
    return DefinitionError(Mistake("translator_failed", shown, message, place))
