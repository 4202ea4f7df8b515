"""Saved files: which of a list of files were saved since the last look.

A file counts as saved once two looks in a row see it the same: an editor may still be writing.
Size, time and inode are compared; an editor may replace a file.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.registry.loaded import file_signature


class SavedFiles:
    """Looks at files; not safe to use from several threads."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = {path: file_signature(path) for path in paths}
        self._before = dict(self._known)

    def look(self, paths: Iterable[str]) -> list[str]:
        """Return the files that were saved since; a file that comes into the list is one.

        Args:
            paths: The files to look at now.
        """
        now = {path: file_signature(path) for path in paths}
        saved = [
            path
            for path, one in now.items()
            if one == self._before.get(path) and one != self._known.get(path)
        ]
        self._before = now
        self._known |= {path: now[path] for path in saved}
        return sorted(saved)
