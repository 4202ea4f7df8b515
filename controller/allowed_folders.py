"""Folders that an operator allows: where sinks write, and where sources find tables.

A document is written by someone who may register dataflows, not by the operator of the machine. So
a path outside of these folders is refused at registration, and again whenever it is opened: a
symbolic link may lead out of them by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AllowedFolders:
    """Folders (`roots`, absolute) below which documents may name paths.

    Relative paths begin at the first one. `setting` lists them, for messages. No document may name
    the folders `taken` by the service itself.
    """

    setting: str
    roots: tuple[Path, ...] = ()
    taken: tuple[Path, ...] = ()

    def refusal(self, path: str) -> str:
        """Return why a path is not allowed; `""` if it is."""
        folder = Path(self.locate(path))
        inside = [one for one in self._real_roots() if folder.is_relative_to(one)]
        if not inside:
            return (
                f"{path!r} is not below any of the folders in {self.setting}; choose a path below "
                "one of them"
            )
        if folder in inside:
            return f"{path!r} is one of the folders in {self.setting}; name a folder below it"
        own = (Path(os.path.realpath(one)) for one in self.taken)
        if any(folder.is_relative_to(one) or one.is_relative_to(folder) for one in own):
            return f"{path!r} contains, or is in, a folder that the service uses; choose another"
        return ""

    def locate(self, path: str) -> str:
        """Return the folder that a path names, after following links; it may be forbidden."""
        given = Path(path)
        absolute = given.is_absolute() or not self.roots
        return os.path.realpath(given if absolute else self.roots[0] / given)

    def root_of(self, folder: str) -> str:
        """Return the root of a folder that `locate` returned and `refusal` allows."""
        return str(next(one for one in self._real_roots() if Path(folder).is_relative_to(one)))

    def _real_roots(self) -> Iterator[Path]:
        return (Path(os.path.realpath(root)) for root in self.roots)
