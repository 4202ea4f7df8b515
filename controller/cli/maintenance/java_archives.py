"""Java's archives of an installation, as components of a bill of materials (CycloneDX 1.6).

Spark's own lie in the package `pyspark`, Delta's in Ivy's folder. An archive is named by Maven's
description inside it, or by Ivy's file name (`group_artifact-version.jar`); one with neither has no
group. Each has its SHA-1, by which registries of Java know an archive whatever its name is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["describe_archives", "spark_archives"]

_FILE = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")
_POM = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")


def spark_archives() -> list[Path]:
    """Return the archives that the package `pyspark` brings; none if it is not installed."""
    found = importlib.util.find_spec("pyspark")
    folders = found.submodule_search_locations if found else None
    return sorted(path for folder in folders or () for path in Path(folder).glob("jars/*.jar"))


def describe_archives(
    archives: Iterable[Path], from_ivy: Iterable[Path] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a component for each archive; of two with the same address the first counts.

    Args:
        archives: Files whose names begin with the archive's name.
        from_ivy: Files of Ivy's folder, whose names begin with the group.
    """
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
        yield {
            "type": "library",
            "bom-ref": purl,
            **({"group": group} if group else {}),
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-1", "content": digest}],
        }


def _ivy_group(path: Path) -> str:
    group, underscore, _ = path.name.partition("_")
    return group if underscore else ""


def _maven_group(path: Path, name: str) -> str:
    """Return the group of an archive that Maven made under this name; `""`: not known."""
    try:
        with zipfile.ZipFile(path) as archive:
            poms = [match for entry in archive.namelist() if (match := _POM.fullmatch(entry))]
    except (zipfile.BadZipFile, OSError):
        return ""
    return next((pom["group"] for pom in poms if pom["name"] == name), "")
