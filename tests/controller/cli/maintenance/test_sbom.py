"""The bill of materials: everything that is installed, once, in the form that scanners read."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controller.cli.maintenance.sbom import (
    describe_archives,
    describe_installation,
    describe_page,
    spark_archives,
)
from tests.controller.cli.conftest import Cbp

REPO = Path(__file__).resolve().parents[4]
_printed: dict[str, Any] = {}


@pytest.fixture
def document(cbp: Cbp) -> dict[str, Any]:
    """What the command prints; once for all tests, since it reads every archive of Spark."""
    if not _printed:
        _printed.update(cbp("sbom").json)
    return _printed


def test_every_installed_package_is_listed_once(document: dict[str, Any]) -> None:
    """With its version and the address by which scanners look vulnerabilities up."""
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    purls = [one["purl"] for one in document["components"]]
    assert len(purls) == len(set(purls))
    for name in ("fastapi", "pyspark", "pydantic-settings"):
        assert f"pkg:pypi/{name}@{importlib.metadata.version(name)}" in purls
    assert document["metadata"]["component"]["name"] == "cbp"
    python = [purl for purl in purls if purl.startswith("pkg:pypi/")]
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", purl) for purl in python)
    assert set(python) != set(purls)


def test_archives_of_java_are_listed_by_maven_address_and_digest(
    document: dict[str, Any],
) -> None:
    """Those of the installed Spark and Delta, each with the digest that registries know it by."""
    components = {one["purl"]: one for one in document["components"]}
    version = importlib.metadata.version("pyspark")
    core = components[f"pkg:maven/org.apache.spark/spark-core_2.13@{version}"]
    (jar,) = (path for path in spark_archives() if path.name.startswith("spark-core_"))
    digest = hashlib.sha1(jar.read_bytes(), usedforsecurity=False).hexdigest()
    assert core["hashes"] == [{"alg": "SHA-1", "content": digest}]
    assert any(purl.startswith("pkg:maven/io.delta/delta-spark_") for purl in components)


def test_an_archive_is_named_by_what_is_known_of_it(tmp_path: Path) -> None:
    """By Maven's description inside, by Ivy's file name, else by its own name; damage is no end."""
    with zipfile.ZipFile(tmp_path / "tool-1.2.jar", "w") as archive:
        archive.writestr("META-INF/maven/org.inner/inner/pom.properties", "")
        archive.writestr("META-INF/maven/org.tools/tool/pom.properties", "")
    (tmp_path / "broken_2.13-7-rc1.jar").write_bytes(b"no archive")
    (tmp_path / "nameless.jar").write_bytes(b"")
    ivy = tmp_path / "commons-pool_commons-pool-1.6.jar"
    ivy.write_bytes(b"")
    files = [tmp_path / name for name in ("tool-1.2.jar", "broken_2.13-7-rc1.jar", "nameless.jar")]
    assert [one["purl"] for one in describe_archives([*files, files[0]], [ivy])] == [
        "pkg:maven/org.tools/tool@1.2",
        "pkg:generic/broken_2.13@7-rc1",
        "pkg:generic/nameless",
        "pkg:maven/commons-pool/commons-pool@1.6",
    ]


def test_packages_of_the_page_are_those_of_its_bundle(tmp_path: Path) -> None:
    """As the build wrote them down; without a page there are none."""
    packages = tmp_path / "packages.json"
    assert describe_page(packages) == []
    packages.write_text('[{"name": "@a/b", "version": "1.0", "license": "MIT"}]', encoding="utf-8")
    (one,) = describe_page(packages)
    assert (one["purl"], one["name"]) == ("pkg:npm/%40a/b@1.0", "@a/b")


def test_what_the_project_needs_is_in_its_dependencies(document: dict[str, Any]) -> None:
    """So that a scanner can separate what is ours to update from what came with something else."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = document["metadata"]["component"]["bom-ref"]
    (needed,) = (one["dependsOn"] for one in document["dependencies"] if one["ref"] == own)
    named = {ref.partition("/")[2].partition("@")[0] for ref in needed}
    expected = {re.split(r"[^\w-]", text)[0].lower() for text in project["dependencies"]}
    assert expected - {"inotify-simple"} <= named


@pytest.mark.soak
def test_the_same_installation_has_the_same_number() -> None:
    """Two documents of one installation differ by their time alone."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    one = describe_installation(importlib.metadata.distributions(), at)
    two = describe_installation(importlib.metadata.distributions(), at)
    assert one == two
    fewer = [d for d in importlib.metadata.distributions() if d.metadata["Name"] != "fastapi"]
    assert describe_installation(fewer, at)["serialNumber"] != one["serialNumber"]
