"""Damages of files on disk."""

from __future__ import annotations

from pathlib import Path

from tests.controller.world import World


def the_last(world: World, pattern: str) -> Path:
    """Return the newest file of a kind."""
    return sorted((Path(world.tables) / "one").glob(pattern))[-1]


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    """Let a file be nothing but zeros, as after a loss of power."""
    path.write_bytes(bytes(path.stat().st_size))


def remove(path: Path) -> None:
    """Lose a file."""
    path.unlink()
