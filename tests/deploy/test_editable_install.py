"""What `pip install -e` leaves: the packages, from whichever folder a program is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.fresh import REPOSITORY

_BUILD = "import sys; sys.path.insert(0, 'controller/ui'); import build_page as b; "
_BUILD += "print(b.build_editable(sys.argv[1]))"

_PROGRAM = """
import site, sys
# The environment that runs the tests has an editable install of its own.
sys.path = [path for path in sys.path if path != sys.argv[2]]
site.addsitedir(sys.argv[1])
import cbp
from cbp import DataflowBuilder
print(cbp.__file__)
"""


def checkout(folder: Path) -> Path:
    """Copy what an editable install reads into a checkout that is named as the package is."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    shutil.copytree(REPOSITORY / "cbp", folder / "cbp", ignore=shutil.ignore_patterns("*.pyc"))
    for package in ("controller", "stages"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    (folder / "controller/ui").mkdir()
    shutil.copy(REPOSITORY / "controller/ui/build_page.py", folder / "controller/ui")
    return folder


def test_a_program_in_the_folder_above_a_checkout_imports_the_package(tmp_path: Path) -> None:
    """There `cbp` is the checkout, a folder without `__init__.py`, not the package."""
    folder, made, there = checkout(tmp_path / "above/cbp"), tmp_path / "made", tmp_path / "site"
    made.mkdir()
    built = subprocess.run(
        [sys.executable, "-c", _BUILD, str(made)],
        cwd=folder,
        env={**os.environ, "CBP_UI": "off"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    (wheel,) = made.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(there)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(there), str(REPOSITORY)],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.strip() == str(folder / "cbp/__init__.py")
