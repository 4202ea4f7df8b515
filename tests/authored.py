"""Packages of an author, written to disk, and fingerprints taken of them in fresh processes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_ASK = """
import importlib, sys
from cbp.model.author.code_fingerprint import fingerprint
module, _, name = sys.argv[1].partition(":")
code = fingerprint(getattr(importlib.import_module(module), name))
print(code)
for part in sorted(code.parts):
    print(part)
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write modules, by path below a folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def install(folder: Path, package: str, points: Mapping[str, str]) -> None:
    """Write what an installed distribution says of itself, with its translators by name."""
    lines = "\n".join(f"{name} = {target}" for name, target in points.items())
    write(
        folder,
        {
            f"{package}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\n",
            f"{package}-1.0.dist-info/entry_points.txt": f"[cbp.translators]\n{lines}\n",
        },
    )


def forget(package: str) -> None:
    """Let a package be loaded anew, as a restart does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    importlib.invalidate_caches()


def asked(folder: Path, target: str, *options: str, seed: str = "0") -> tuple[str, list[str]]:
    """Return the fingerprint of an object, and the parts, as a new interpreter finds it."""
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, *options, "-c", _ASK, target],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    text, *parts = done.stdout.split()
    return text, parts
