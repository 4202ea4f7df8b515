"""Loaded files: detects whether the files of an author's modules changed since they were loaded.

A module is loaded once; its file may be edited, replaced or removed later. The loaded code runs, so
a registration after such a change would register code that is no longer on disk. Files are noted
when their modules are first seen, right after the import, and compared when a document is checked.

    import shop.count  -> see({"shop"})          (size, time, inode of all its loaded files)
    edit shop/text.py  -> changed({"shop.text"}) == ("/.../shop/text.py",)

A touched file is distinguished from an edited file by its content, if the content was noted.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass

Signature = tuple[int, int, int]
"""Inode, size and time of a file."""


@dataclass(frozen=True, slots=True)
class _Seen:
    path: str
    signature: Signature | None
    content: str | None = None


class LoadedFiles:
    """The files of loaded modules when first seen; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._loaded: tuple[int, str] = (0, "")
        self._scanned: set[str] = set()

    def see(self, modules: Iterable[str]) -> None:
        """Note the content of modules' files, and the existence of other files of their packages.

        Called once for each stage of every document that is read. So it examines all modules of
        the process only if there are new modules or packages.
        """
        names = set(modules)
        with self._lock:
            self._scan({_package(name) for name in names})
            for name in names:
                known = self._seen.get(name)
                if known is None or known.content is not None:
                    continue
                if file_signature(known.path) == known.signature:
                    content = _content(known.path)
                    self._seen[name] = _Seen(known.path, known.signature, content)

    def _scan(self, packages: set[str]) -> None:
        """Note the files of the packages' loaded modules, unless they are noted already."""
        modules = sys.modules.copy()  # other threads import meanwhile
        loaded = (len(modules), next(reversed(modules), ""))
        if loaded != self._loaded:
            self._loaded = loaded
            self._scanned.clear()
        packages = packages - self._scanned
        if not packages:
            return
        self._scanned |= packages
        for name, module in modules.items():
            if name not in self._seen and _package(name) in packages:
                path = _path(getattr(module, "__file__", None))
                self._seen[name] = _Seen(path, file_signature(path))

    def changed(self, modules: Iterable[str]) -> tuple[str, ...]:
        """Return the files of modules that changed since they were first seen."""
        with self._lock:
            seen_files = {self._seen[name] for name in modules if name in self._seen}
        return tuple(sorted({seen.path for seen in seen_files if seen.path and _differs(seen)}))


def _package(module: str) -> str:
    return module.partition(".")[0]


def _differs(seen: _Seen) -> bool:
    if file_signature(seen.path) == seen.signature:
        return False
    return seen.content is None or _content(seen.path) != seen.content


def _path(file: str | None) -> str:
    """Return the file of a module; for a module in an archive, the archive."""
    path = file or ""
    while path and not os.path.isfile(path):
        above = os.path.dirname(path)
        path = above if above != path else ""
    return path


def file_signature(path: str) -> Signature | None:
    """Return a signature that changes when a file is edited; `None` if it cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _content(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
