"""Secrets among Spark's settings reach the JVM, and nobody who looks at its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import REPOSITORY

pytestmark = pytest.mark.spark

SECRET = "s3cr3t"
_START = """
import json, os, sys
from pathlib import Path
from cbp.engine.spark.session import SparkSettings, start_session
conf = {
    "spark.hadoop.fs.s3a.secret.key": "s3cr3t",
    "spark.hadoop.plain": "seen",
    "spark.hadoop.proxy": "http://user:s3cr3t@proxy",
    "spark.sql.warehouse.dir": sys.argv[1],
}
session = start_session(SparkSettings(master="local[1]", scratch=True, conf=conf))
hadoop = session.sparkContext._jsc.hadoopConfiguration()
found = [hadoop.get(name) for name in ("fs.s3a.secret.key", "plain", "proxy")]
lines = []
for process in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        group = os.getpgid(int(process.parent.name)) == os.getpgid(0)
        lines += [process.read_text(errors="replace")] if group else []
    except OSError:
        pass
doubled = session.sparkContext.parallelize([1, 2]).map(lambda one: 2 * one).collect()
print("FOUND " + json.dumps([found, lines, doubled]))
session.stop()
"""


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_no_command_line_shows_a_secret_of_spark(tmp_path: Path) -> None:
    """The JVM knows it; its command line, and that of every process of the service, does not.

    The folder of temporary files has too long a path for Unix sockets: Python workers start anyway.
    """
    folder = tmp_path / ("long" * 15)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _START, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    actual, lines, doubled = json.loads(answer.removeprefix("FOUND "))
    assert doubled == [2, 4]
    assert actual == [SECRET, "seen", f"http://user:{SECRET}@proxy"]
    jvm = [line for line in lines if "SparkSubmit" in line]
    assert jvm
    assert "spark.hadoop.plain=seen" in jvm[0]
    assert not [line for line in lines if f"={SECRET}" in line or f":{SECRET}@proxy\0" in line]
    assert SECRET not in done.stderr
