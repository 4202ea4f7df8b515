"""deploy/constraints.txt and pyproject.toml agree, and the lock names no host.

The lock is made by the command at its head; a dependency that was added without it fails here.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parents[2]
LOCK = (REPO / "deploy" / "constraints.txt").read_text(encoding="utf-8")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def _requirements() -> list[Requirement]:
    document = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    texts = [*project["dependencies"], *document["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        texts += extra
    return [Requirement(text) for text in texts]


def test_every_requirement_has_a_pin_that_meets_it():
    """All extras install from the lock alone."""
    pins = {canonicalize_name(name): version for name, version in PIN.findall(LOCK)}
    for requirement in _requirements():
        name = canonicalize_name(requirement.name)
        if name != "cbp":
            assert name in pins, f"lock again: {name} has no pin"
            assert requirement.specifier.contains(pins[name], prereleases=True), requirement


def test_every_pin_has_a_hash():
    """`pip install --require-hashes` refuses a package that was changed after we looked."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", LOCK)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]


def test_the_lock_names_no_place():
    """Neither an index nor a folder: the machine's own pip settings decide where from."""
    assert "://" not in LOCK
    assert not re.search(r"--(extra-)?index-url|--find-links|^-f ", LOCK, re.MULTILINE)
