"""A driver that anyone may reach runs nobody's code: clusters without a secret are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp.engine.spark.session import authentication, sockets_in, spark_defaults
from cbp.errors import SparkUnauthenticatedError

ON = {"spark.authenticate": "true"}
SECRET = {"spark.authenticate.secret": "s"}


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2,4]", "yarn", "k8s://x"]
)
def test_a_secret_is_made_wherever_spark_can_make_one(master: str) -> None:
    """Nobody has to set anything on one machine, on YARN and on Kubernetes."""
    assert authentication(master, {}, {}) == ON


@pytest.mark.parametrize("told", [{}, ON, {"spark.authenticate.secret": " "}])
@pytest.mark.parametrize("master", ["spark://there:7077", "spark://a:1,b:2", "some://other"])
def test_a_master_whose_secret_is_shared_needs_one(master: str, told: dict[str, str]) -> None:
    """By settings, by Spark's defaults or by its environment; a blank one is none."""
    with pytest.raises(SparkUnauthenticatedError) as caught:
        authentication(master, told, {})
    assert caught.value.details["master"] == master
    assert authentication(master, {**told, **SECRET}, {}) == ON
    assert authentication(master, ON, {"_SPARK_AUTH_SECRET": "s"}) == ON


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://https://there"])
def test_a_cluster_may_not_be_left_open_on_purpose(master: str) -> None:
    """Whatever secret there is, it guards nothing where authentication is switched off."""
    with pytest.raises(SparkUnauthenticatedError):
        authentication(master, {"spark.authenticate": "False", **SECRET}, {})


def test_the_secret_may_lie_in_sparks_own_file_of_defaults(tmp_path: Path) -> None:
    """It is read as Spark reads it, from the folder that the environment names, or of Spark."""
    text = "# spark.authenticate no\n\nspark.authenticate   true\nspark.authenticate.secret=a b\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text, encoding="utf-8")
    expected = {"spark.authenticate": "true", "spark.authenticate.secret": "a b"}
    assert spark_defaults({}, home=str(tmp_path)) == expected
    assert spark_defaults({"SPARK_HOME": str(tmp_path)}, home="/none") == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")}, home="/none") == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path)}, home=str(tmp_path)) == {}


def test_unix_sockets_are_used_where_the_folder_has_room_for_their_names() -> None:
    """103 bytes is what macOS has for the path of a socket, and the name has 43.

    Where they fit, an operator who has switched them off is not overruled.
    """
    assert sockets_in(Path("/" + 59 * "a")) == {}
    too_long = Path("/" + 60 * "a")
    assert sockets_in(too_long) == {"spark.python.unix.domain.socket.enabled": "false"}
