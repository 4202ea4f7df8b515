"""docker-compose.yml keeps its promises: loopback only, no default secrets, one set of roles.

No test needs a Docker daemon. What the file names elsewhere is checked against its owner: commands
against deploy/entrypoint.sh, variables against `controller.settings.Settings`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.settings import Settings

REPO = Path(__file__).resolve().parents[2]
COMPOSE = REPO / "docker-compose.yml"
ENTRYPOINT = (REPO / "deploy" / "entrypoint.sh").read_text(encoding="utf-8")
OURS = ["service", "spark-master", "spark-worker-1", "spark-worker-2"]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _environment(service: dict[str, Any]) -> dict[str, str]:
    values = service.get("environment", {})
    assert isinstance(values, dict), "write `NAME: value`, which YAML can merge"
    return {str(name): str(value) for name, value in values.items()}


def test_the_cluster_is_complete(compose: dict[str, Any]):
    """The service, PostgreSQL, a Spark master and two workers."""
    assert sorted(compose["services"]) == sorted([*OURS, "postgres"])


def test_every_published_port_is_on_the_loopback_address(compose: dict[str, Any]):
    """Nothing of the cluster can be reached from another machine."""
    for name, service in compose["services"].items():
        assert "network_mode" not in service, name
        for port in service.get("ports", []):
            assert isinstance(port, str), f"{name}: the short form shows its address"
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port}"
    assert compose["services"]["service"]["ports"]


def test_commands_are_roles_of_the_entrypoint(compose: dict[str, Any]):
    """Each of our containers starts a role that deploy/entrypoint.sh has."""
    roles = set(re.findall(r"^    ([a-z]+)\) ", ENTRYPOINT, re.MULTILINE))
    started = {compose["services"][name]["command"][0] for name in OURS}
    assert started == {"service", "master", "worker"}
    assert started <= roles


def test_variables_are_settings_that_somebody_reads(compose: dict[str, Any]):
    """A misspelled variable would be ignored in silence, so each must have a reader."""
    settings = {f"CBP_{name.upper()}" for name in Settings.model_fields}
    for name in OURS:
        for variable in _environment(compose["services"][name]):
            if variable.startswith("CBP_"):
                assert variable in settings, f"{name}: {variable}"
            else:
                assert re.search(rf"\${{?{variable}\b", ENTRYPOINT), f"{name}: {variable}"


def test_the_settings_are_accepted(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """The service's variables make valid settings, and name the cluster's master and database."""
    for name, value in _environment(compose["services"]["service"]).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.spark_master == "spark://spark-master:7077"
    assert settings.database_url.startswith("postgresql+psycopg://cbp@postgres")
    assert str(settings.root) == "/var/lib/cbp"


def test_service_and_workers_share_the_tables_but_not_the_cache(compose: dict[str, Any]):
    """Driver and executors share nothing but the table location (DESIGN 5.8)."""
    services = compose["services"]
    root = _environment(services["service"])["CBP_ROOT"]
    for name in ("service", "spark-worker-1", "spark-worker-2"):
        assert f"tables:{root}" in services[name]["volumes"], name
    assert "tables" in compose["volumes"]
    cache = _environment(services["service"])["CBP_CACHE"]
    assert not Path(cache).is_relative_to(root)


def test_no_secret_stands_in_the_file(compose: dict[str, Any]):
    """Passwords and secrets come from files that git ignores, and there is no default for them."""
    text = COMPOSE.read_text(encoding="utf-8")
    assert not re.search(r"(?i)(password|secret|token)\w*\s*[:=]\s*\$\{\w+:-", text)
    for name, service in compose["services"].items():
        for variable, value in _environment(service).items():
            if re.search(r"PASSWORD|SECRET|TOKEN", variable):
                assert variable.endswith("_FILE"), f"{name}: {variable}"
                assert value.removeprefix("/run/secrets/") in service["secrets"], name
            assert not re.search(r"://[^/\s]*:[^/\s@]*@", value), f"{name}: {variable}"
    for secret in compose["secrets"].values():
        path = Path(secret["file"])
        assert path.parent == Path("deploy/secrets")
        assert f"{path.name}" in ENTRYPOINT, "`entrypoint.sh secrets` makes it"
    ignored = (REPO / "deploy" / "secrets" / ".gitignore").read_text(encoding="utf-8").split("\n")
    assert "*" in ignored


def test_every_spark_process_has_the_secret(compose: dict[str, Any]):
    """Master, workers and service authenticate to each other (CVE-2020-9480)."""
    for name in OURS:
        service = compose["services"][name]
        assert _environment(service)["SPARK_SECRET_FILE"] == "/run/secrets/spark_secret", name
        assert "spark_secret" in service["secrets"], name


def test_containers_start_in_order(compose: dict[str, Any]):
    """What others wait for has a health check; the service waits for database and master."""
    services = compose["services"]
    assert set(services["service"]["depends_on"]) == {"postgres", "spark-master"}
    for service in services.values():
        for name, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy"
            assert services[name]["healthcheck"]["test"][0] == "CMD"


def test_our_containers_run_without_rights(compose: dict[str, Any]):
    """One image, not root, no capabilities, no way to gain any."""
    dockerfile = (REPO / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    users = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert users
    assert set(users) == {"cbp"}
    for name in OURS:
        service = compose["services"][name]
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["build"]["dockerfile"] == "deploy/Dockerfile", name


def test_every_foreign_image_is_pinned_by_its_digest(compose: dict[str, Any]):
    """Each comes from a variable that `entrypoint.sh images` sets, and none has another default."""
    dockerfile = (REPO / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE)
    assert [base for base in bases if base not in stages] == ["${PYTHON_IMAGE}"]
    assert not re.search(r"^# *syntax *=", dockerfile, re.MULTILINE), (
        "that is an image by its tag, too"
    )
    named = [compose["services"][name]["build"]["args"]["PYTHON_IMAGE"] for name in OURS]
    named += [one["image"] for one in compose["services"].values() if "build" not in one]
    required = [
        re.fullmatch(r"\$\{(CBP_\w+_IMAGE):\?.*entrypoint\.sh images.*\}", one) for one in named
    ]
    assert all(required), named
    pinned = dict(re.findall(r"^    pin_image (\w+) (\S+)$", ENTRYPOINT, re.MULTILINE))
    assert {one[1] for one in required if one} == set(pinned)
    default = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert default is not None
    assert default[1] == pinned["CBP_PYTHON_IMAGE"]


@pytest.mark.parametrize(
    ("image", "status"),
    [
        ("python:3.11-slim-bookworm", 1),
        ("python@sha256:0123", 0),
        ("mirror.example/python:3.11@sha256:0123", 0),
    ],
)
def test_the_build_refuses_an_image_without_a_digest(image: str, status: int):
    """The first step of the build fails with the command that pins the image."""
    dockerfile = (REPO / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE)
    done = subprocess.run(
        ["/bin/sh", "-c", steps[0].replace("\\\n", "")],
        env={"PYTHON_IMAGE": image},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert ("entrypoint.sh images" in done.stderr) == (status != 0)


def test_the_image_holds_what_the_build_needs():
    """Every path that the Dockerfile copies exists and passes its ignore file."""
    dockerfile = (REPO / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    allowed = (REPO / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    copied = [
        word
        for line in re.findall(r"^COPY --chown=\S+ (.*)$", dockerfile, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert {"deploy", "cbp", "controller", "stages", "pyproject.toml"} <= set(copied)
    for path in copied:
        assert (REPO / path).exists(), path
        assert f"!{path}" in allowed, path
