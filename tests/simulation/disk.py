"""A disk that can lose its power: what was not synced is gone, name by name and byte by byte.

`Disk` replaces `os.fsync`. A sync of a file makes its content durable, a sync of a
folder its names; nothing else does. `lose` then leaves of every folder the durable names,
and of what came or went since a part that the seed chooses (nothing, all, or each by
itself), since a file system may write at any time. A name that survives without its
content has a prefix of it.

What is modelled: a rename is in one place at least, as on every journaling file system.
What is not: sectors torn inside of what was synced, and SQLite's own files, whose author
tests just that (https://sqlite.org/atomiccommit.html); they lie outside.

Source: BOB and ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014):
the order of effects is free but for what is synced.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Disk"]


@dataclass
class Disk:
    """What is durable below one folder.

    Args:
        root: The disk.
        shadow: An empty folder on the same file system, outside of `root`: keeps the
            content of durable files that were removed since.

    Attributes:
        names: Inode of a folder to its durable names, with their inodes; those of folders are
            negative. (A removed folder's inode is used again, by a file perhaps.)
        sizes: Inode of a file to its durable size.
    """

    root: Path
    shadow: Path
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def fsync(self, handle: int) -> None:
        """Stand in for `os.fsync`."""
        path = os.readlink(f"/proc/self/fd/{handle}")
        if not path.startswith(f"{self.root}/") and path != str(self.root):
            return
        actual = os.fstat(handle)
        if not stat.S_ISDIR(actual.st_mode):
            self.sizes[actual.st_ino] = actual.st_size
            self._keep(actual.st_ino, path)
            return
        self.names[actual.st_ino] = now = {}
        for name, inode in _listing(path):
            if inode > 0 and not self._keep(inode, f"{path}/{name}"):
                continue  # another process moved it away meanwhile
            now[name] = inode

    def durable(self) -> dict[str, list[Any]]:
        """Return what is durable as JSON values, for `learn`; empty if nothing is."""
        if not self.names and not self.sizes:
            return {}
        names = [[folder, names] for folder, names in self.names.items()]
        return {"names": names, "sizes": [*self.sizes.items()]}

    def learn(self, durable: Mapping[str, list[Any]]) -> None:
        """Add what another one, with the same shadow, knew to be durable later than this one."""
        self.names.update(durable["names"])
        self.sizes.update(durable["sizes"])

    def lose(self, rng: random.Random) -> None:
        """Leave of the disk what may be found after a loss of power."""
        choose = rng.choice((_none, _all, rng.random))
        before = {inode for folder in self.names.values() for inode in folder.values()}
        kept: dict[int, dict[str, int]] = {}
        self._settle(os.stat(self.root).st_ino, str(self.root), choose, kept)
        self._restore_renamed(before, kept)
        self._rebuild(kept, rng)

    def _keep(self, inode: int, path: str) -> bool:
        """Link a file to its shadow; `False` when its path names it no more."""
        kept = self.shadow / str(inode)
        if not kept.exists():
            # A link keeps the inode from being used again, and its content readable.
            try:
                os.link(path, kept)
            except FileNotFoundError:
                return False
            if kept.stat().st_ino != inode:
                kept.unlink()
                return False
        return True

    def _settle(
        self, folder: int, path: str, choose: object, kept: dict[int, dict[str, int]]
    ) -> None:
        """Decide which names of a folder survive, and of those below it."""
        durable = self.names.get(folder, {})
        now = dict(_listing(path)) if os.path.isdir(path) else {}
        survive: dict[str, int] = {}
        for name in sorted({*durable, *now}):
            old, new = durable.get(name), now.get(name)
            taken = new if old == new or choose() < 0.5 else old  # type: ignore[operator]
            if taken is None:
                continue
            survive[name] = taken
            if taken == new:
                full = f"{path}/{name}"
                if taken < 0:
                    self._settle(-taken, full, choose, kept)
                else:
                    self._keep(taken, full)
        kept[folder] = survive

    def _restore_renamed(self, before: set[int], kept: dict[int, dict[str, int]]) -> None:
        """Put back what a rename would have lost at both ends."""
        surviving = {inode for names in kept.values() for inode in names.values()}
        linked = {inode for folder, _, _ in os.walk(self.root) for _, inode in _listing(folder)}
        for inode in sorted(one for one in (before & linked) - surviving if one > 0):
            for folder, names in self.names.items():
                for name, durable in names.items():
                    if durable == inode and folder in kept and name not in kept[folder]:
                        kept[folder][name] = inode

    def _rebuild(self, kept: dict[int, dict[str, int]], rng: random.Random) -> None:
        """Make the disk anew from what survives; everything on it is then durable."""
        old = self.root.with_name(f"{self.root.name}.old")
        mode = os.stat(self.root).st_ino
        self.root.rename(old)
        self._make(self.root, mode, kept, rng)
        shutil.rmtree(old)
        shutil.rmtree(self.shadow)
        self.shadow.mkdir()
        self.names, self.sizes = {}, {}
        self.sync_all()

    def _make(
        self, path: Path, folder: int, kept: dict[int, dict[str, int]], rng: random.Random
    ) -> None:
        path.mkdir()
        for name, inode in sorted(kept.get(folder, {}).items()):
            if inode < 0:
                self._make(path / name, -inode, kept, rng)
                continue
            source = self.shadow / str(inode)
            data = source.read_bytes()
            synced = self.sizes.get(inode)
            if synced is None:
                data = data[: rng.randrange(len(data) + 1)]
            elif synced < len(data):
                data = data[: rng.randrange(synced, len(data) + 1)]
            (path / name).write_bytes(data)
            times = os.stat(source)
            os.utime(path / name, ns=(times.st_atime_ns, times.st_mtime_ns))

    def sync_all(self) -> None:
        """Make everything durable that is there."""
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                handle = os.open(path, os.O_RDONLY)
                self.fsync(handle)
                os.close(handle)


def _listing(path: str) -> Iterator[tuple[str, int]]:
    """Yield names and inodes; those of folders negative."""
    with os.scandir(path) as entries:
        for entry in entries:
            folder = entry.is_dir(follow_symlinks=False)
            yield entry.name, -entry.inode() if folder else entry.inode()


def _none() -> float:
    return 1.0


def _all() -> float:
    return 0.0
