"""The command `cbp sbom`: which packages this installation consists of, as CycloneDX JSON.

It lists what is installed in this Python environment, from the metadata of the distributions. So it
describes this machine, whatever a lock file says. The packages that the page was built from are
those of its lock file, as the build recorded them (`controller/ui/build_page.py`).

Spark's Java archives are in the package `pyspark`, Delta's in Ivy's folder. An archive is named
by Maven's description inside it, or by Ivy's file name (`group_artifact-version.jar`); one with
neither has no group. Each has its SHA-1, by which registries of Java know an archive.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

import controller
from controller.cli.maintenance.machine_checks import delta_archives
from controller.cli.session import Session
from controller.terminal import print_json

SPEC_VERSION = "1.6"
_PAGE_PACKAGES = Path(controller.__file__).parent / "ui" / "bundle" / "packages.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LICENSE_LENGTH = 100
"""In characters; a longer field is the text of a license, and not its name."""


def sbom_command(session: Session) -> None:
    """Print the packages of this installation as a CycloneDX document, which is always JSON."""
    archives = describe_archives(spark_archives(), delta_archives({}))
    parts = [*archives, *describe_page(_PAGE_PACKAGES)]
    installed = importlib.metadata.distributions()
    print_json(describe_installation(installed, session.clock.now(), parts))


def describe_page(packages: Path) -> list[dict[str, Any]]:
    """Return a component for each package in the page's bundle; none if there is no page."""
    try:
        listed = json.loads(packages.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found = ((one["name"], one["version"], one["license"]) for one in listed)
    return [
        _component(f"pkg:npm/{quote(name)}@{version}", name, version, license_)
        for name, version, license_ in found
    ]


def describe_installation(
    installed: Iterable[Distribution], at: datetime, parts: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a CycloneDX document; if two distributions have one name, the first counts.

    Args:
        parts: Components of other kinds: Java's archives, packages of the page.
    """
    chosen: dict[str, Distribution] = {}
    for one in installed:
        if one.metadata["Name"]:  # a folder that was half removed has none
            chosen.setdefault(_canonical(one.metadata["Name"]), one)
    refs = {name: f"pkg:pypi/{name}@{quote(one.version)}" for name, one in chosen.items()}
    components = {
        name: _component(refs[name], name, one.version, _license(one))
        for name, one in sorted(chosen.items())
    }
    own = components.pop("cbp", {"type": "application", "name": "cbp", "bom-ref": "cbp"})
    content = " ".join(sorted([*refs.values(), *(part["purl"] for part in parts)]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": at.isoformat(timespec="seconds"),
            "component": {**own, "type": "application"},
            "properties": [{"name": "python", "value": platform.python_version()}],
        },
        "components": [*components.values(), *parts],
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[n] for n in _needs(one) if n in refs)}
            for name, one in sorted(chosen.items())
        ],
    }


def _component(ref: str, name: str, version: str, license_: str = "") -> dict[str, Any]:
    licenses = {"licenses": [{"license": {"name": license_}}]} if license_ else {}
    about = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
    return {**about, **licenses}


def _license(one: Distribution) -> str:
    said = [*_all(one, "License-Expression"), *_all(one, "License"), ""]
    license_ = said[0].strip()
    if not license_ or len(license_) > _LICENSE_LENGTH or "\n" in license_:
        classes = _all(one, "Classifier")
        named = [text.rpartition(" :: ")[2] for text in classes if text.startswith("License ::")]
        license_ = named[0] if named else ""
    return license_


def _all(one: Distribution, field: str) -> list[str]:
    return [str(value) for value in one.metadata.get_all(field) or []]


def _needs(one: Distribution) -> set[str]:
    """Return the packages that a distribution needs; those of its extras are left out."""
    needed = (text for text in one.requires or [] if "extra ==" not in text.partition(";")[2])
    return {_canonical(match[0]) for text in needed if (match := _NAME.match(text))}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_FILE = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")
_POM = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")


def spark_archives() -> list[Path]:
    """Return the archives in the package `pyspark`; none if it is not installed."""
    found = importlib.util.find_spec("pyspark")
    folders = found.submodule_search_locations if found else None
    return sorted(path for folder in folders or () for path in Path(folder).glob("jars/*.jar"))


def describe_archives(
    archives: Iterable[Path], from_ivy: Iterable[Path] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a component for each archive; if two have the same address, the first counts."""
    seen: set[str] = set()
    for path, group in [*((p, "") for p in archives), *((p, _ivy_group(p)) for p in from_ivy)]:
        match = _FILE.fullmatch(path.name.removeprefix(f"{group}_"))
        name, version = (match["name"], match["version"]) if match else (path.stem, "")
        group = group or _maven_group(path, name)
        kind = f"maven/{group}" if group else "generic"
        purl = f"pkg:{kind}/{name}" + (f"@{version}" if version else "")
        if purl in seen:
            continue
        seen.add(purl)
        digest = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
        hashes = {"hashes": [{"alg": "SHA-1", "content": digest}]}
        of_group = {"group": group} if group else {}
        yield {**_component(purl, name, version), **of_group, **hashes}


def _ivy_group(path: Path) -> str:
    group, underscore, _ = path.name.partition("_")
    return group if underscore else ""


def _maven_group(path: Path, name: str) -> str:
    """Return the group of an archive that Maven made under this name; `""` if it is unknown."""
    try:
        with zipfile.ZipFile(path) as archive:
            poms = [match for entry in archive.namelist() if (match := _POM.fullmatch(entry))]
    except (zipfile.BadZipFile, OSError):
        return ""
    return next((pom["group"] for pom in poms if pom["name"] == name), "")
