"""The settings choose the engine, and nothing of another engine is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cbp.engine.direct import LocalEngine
from controller.app import engine_for
from controller.settings import load_settings


def test_the_service_without_spark_does_not_load_it(tmp_path: Path) -> None:
    """Importing the service, and the local engine, loads neither Spark nor a JVM."""
    code = (
        "import sys; from controller.app import Service; "
        "from controller.settings import load_settings; "
        f"Service(load_settings(root={str(tmp_path)!r}, engine='local')).stop(); "
        "sys.exit('pyspark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_the_settings_choose_the_engine(tmp_path: Path) -> None:
    """`local` is the direct engine in this process."""
    engine = engine_for(load_settings(root=tmp_path, engine="local", loop_tasks_max=3))
    assert isinstance(engine, LocalEngine)
    assert engine._executor.loop_tasks_max == 3
    engine.close()
