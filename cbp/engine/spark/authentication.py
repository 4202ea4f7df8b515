"""Authentication of connections to a Spark driver and its executors, by a shared secret.

    local, yarn, k8s://   Spark makes a secret for each driver and gives it to its executors
    spark://, others      master, workers and driver share one; without it the master is refused

Without a secret, anyone who can reach the ports can run code as the service (CVE-2020-9480).
Pure, except that `spark_defaults` reads a file.
Absent on purpose: `local-cluster`, which is for tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cbp.errors import SparkUnauthenticatedError

_ON = "spark.authenticate"
_SECRET = "spark.authenticate.secret"
_GIVEN_BY_SPARK = "_SPARK_AUTH_SECRET"
_LOCAL = re.compile(r"local(\[.*\])?")
_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*")


def authentication(
    master: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings by which a driver authenticates connections.

    Args:
        settings: Settings of the operator, from `CBP_SPARK_CONF` or Spark's own defaults.

    Raises:
        SparkUnauthenticatedError: If the master is a cluster, and authentication is switched off;
            or there is no secret, which YARN and Kubernetes do not need.
    """
    if master.startswith("local-cluster"):
        return {}
    asked = settings.get(_ON, "true").strip().lower()
    if _LOCAL.fullmatch(master):
        return {_ON: asked}
    if asked != "true":
        raise SparkUnauthenticatedError(master, f"{_ON} is {asked}")
    if not (master == "yarn" or master.startswith("k8s://")):
        secret = settings.get(_SECRET, "") or environment.get(_GIVEN_BY_SPARK, "")
        if not secret.strip():
            raise SparkUnauthenticatedError(master, f"{_SECRET} is not set")
    return {_ON: "true"}


def spark_defaults(environment: Mapping[str, str], *, home: str) -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`; empty if there is no such file.

    Args:
        environment: Environment variables; `SPARK_CONF_DIR` names the folder of the file, or
            `SPARK_HOME` that of Spark.
        home: Spark's folder, used if the environment names none.
    """
    folder = environment.get("SPARK_CONF_DIR") or f"{environment.get('SPARK_HOME') or home}/conf"
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line[1]: line[2] for line in matches if line is not None}
