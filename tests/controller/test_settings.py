"""Settings: where values come from, what is refused, and that secrets stay secret."""

from __future__ import annotations

import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from cbp.engine.storage.files import files_for
from cbp.errors import DefinitionError, FileSystemUnsafeError
from controller.secret_values import create_token_file
from controller.settings import MASK, Settings, load_settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("CBP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_paths_lie_below_the_root_unless_they_are_given(tmp_path):
    """Setting only the root puts everything there; a given path wins."""
    settings = load_settings(root=tmp_path / "here", cache=tmp_path / "fast")
    assert settings.tables == str(tmp_path / "here" / "tables")
    assert settings.drop_root == tmp_path / "here" / "drop"
    assert settings.token_file == tmp_path / "here" / "token"
    assert settings.database_url == f"sqlite:///{tmp_path}/here/cbp.db"
    assert settings.cache == tmp_path / "fast"


@pytest.mark.parametrize("suffix", ["yaml", "toml"])
def test_arguments_win_over_the_environment_and_that_over_the_file(suffix, monkeypatch, tmp_path):
    """The order of precedence is: argument, environment, file, default."""
    file = tmp_path / f"cbp.{suffix}"
    equals = ": " if suffix == "yaml" else " = "
    names = ("port", "parallel_runs_max", "failures_max")
    file.write_text("".join(f"{name}{equals}11\n" for name in names))
    monkeypatch.setenv("CBP_PARALLEL_RUNS_MAX", "12")
    monkeypatch.setenv("CBP_FAILURES_MAX", "12")
    for settings in (load_settings(file, failures_max=13), _with_config(monkeypatch, file)):
        got = (settings.port, settings.parallel_runs_max, settings.failures_max)
        assert got == (11, 12, 13)
    assert load_settings().tick_seconds == 1.0


def _with_config(monkeypatch: pytest.MonkeyPatch, file: Path) -> Settings:
    monkeypatch.setenv("CBP_CONFIG", str(file))
    settings = load_settings(failures_max=13)
    monkeypatch.delenv("CBP_CONFIG")
    return settings


def test_switches_are_on_or_off_in_the_environment(monkeypatch):
    """A switch that is not set is on; `off` and `on` are what an operator writes."""
    assert load_settings().plan_optimisations
    for text, value in (("off", False), ("on", True)):
        monkeypatch.setenv("CBP_PLAN_OPTIMISATIONS", text)
        assert load_settings().plan_optimisations is value


def test_lists_are_written_with_commas_in_the_environment(monkeypatch):
    """An environment variable holds a list as `a,b`."""
    monkeypatch.setenv("CBP_ALLOWED_PACKAGES", "cbp, my-flows")
    monkeypatch.setenv("CBP_RETRY_DELAYS_SECONDS", "1,2.5")
    settings = load_settings()
    assert settings.allowed_packages == ("cbp", "my-flows")
    assert settings.retry_delays_seconds == (1.0, 2.5)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_an_address_that_others_reach_must_be_allowed(host):
    """The service listens beyond this machine only when the operator says so."""
    with pytest.raises(DefinitionError) as caught:
        load_settings(host=host)
    assert "CBP_ALLOW_REMOTE" in caught.value.message
    assert load_settings(host=host, allow_remote=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_need_no_permission(host):
    """Loopback is the default and needs no switch."""
    assert load_settings(host=host).url.startswith("http://")


def test_every_wrong_setting_is_named_and_no_value_is_shown():
    """An operator mends all settings in one go; a message never holds a value."""
    with pytest.raises(DefinitionError) as caught:
        load_settings(port=0, engine="canary-1", nonsense="canary-2")
    assert caught.value.mistake.code == "settings_invalid"
    assert all(name in caught.value.message for name in ("port", "engine", "nonsense"))
    assert "canary" not in caught.value.message


@pytest.mark.parametrize("text", ["port: [", "- 1", "prot: 1"])
def test_a_wrong_file_is_refused(text, tmp_path):
    """A file that cannot be read, or has an unknown name, stops the start."""
    (tmp_path / "cbp.yaml").write_text(text)
    with pytest.raises(DefinitionError):
        load_settings(tmp_path / "cbp.yaml")


def test_no_secret_is_shown():
    """Neither what is printed nor the repr holds a token, a password or a key."""
    settings = load_settings(
        token="canary-1",
        database_url="postgresql+psycopg://cbp:canary-2@db/cbp",
        spark_conf={"spark.hadoop.fs.s3a.secret.key": "canary-3", "spark.sql.x": "shown"},
    )
    shown = json.dumps(settings.effective())
    assert "canary" not in shown + repr(settings) + str(settings)
    assert "shown" in shown
    assert settings.effective()["database_url"] == f"postgresql+psycopg://cbp:{MASK}@db/cbp"


def test_no_key_of_a_bucket_is_shown(monkeypatch, tmp_path):
    """Neither one of a setting, nor one that botocore finds by itself."""
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_secret_access_key = canary-5\n[x]\naws_session_token=canary-6\n"
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-3")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "canary-4")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    settings = load_settings(s3_access_key_id="canary-1", s3_secret_access_key="canary-2")
    assert "canary" not in json.dumps(settings.effective()) + repr(settings)
    assert {f"canary-{number}" for number in range(1, 7)} <= settings.secret_values()
    file.write_text("no profile")
    assert "canary-4" in load_settings().secret_values()


@pytest.mark.parametrize(
    "wrong",
    [
        {"source_locations": "https://bucket/x"},
        {"source_locations": "s3://canary:canary@bucket/x"},
        {"s3_endpoint": "s3.example.org"},
        {"s3_endpoint": "https://canary:canary@s3.example.org"},
        {"s3_endpoint": "https://s3.example.org/bucket"},
        {"s3_access_key_id": "canary"},
        {"source_list_seconds": 0.5},
    ],
)
def test_a_wrong_setting_of_buckets_is_refused_without_its_value(wrong):
    """A location is no address, an address has no key, and a key has two parts."""
    with pytest.raises(DefinitionError) as caught:
        load_settings(**wrong)
    assert "canary" not in caught.value.message


def test_no_location_is_allowed_by_default(monkeypatch):
    """An operator allows each, as a list; the last slash may be left out."""
    assert load_settings().source_locations == ()
    monkeypatch.setenv("CBP_SOURCE_LOCATIONS", "s3://bucket/orders, s3://other/")
    assert load_settings().source_locations == ("s3://bucket/orders/", "s3://other/")


def test_the_token_is_made_once_for_the_owner_only():
    """The first start makes a token of 256 bits that only the owner reads; it stays."""
    settings = load_settings()
    assert settings.read_token() is None
    token = settings.ensure_token()
    assert len(token) >= 43
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
    assert settings.ensure_token() == token == load_settings().read_token()
    assert [path.name for path in settings.root.iterdir()] == ["token"]


def test_the_token_of_a_simultaneous_start_is_taken(monkeypatch):
    """Two processes that start at once use the same token."""
    settings = load_settings()
    link = os.link

    def other_was_first(draft, target):
        Path(target).write_text("theirs\n")
        Path(target).chmod(0o600)
        link(draft, target)

    monkeypatch.setattr(os, "link", other_was_first)
    assert settings.ensure_token() == "theirs"


def test_a_token_file_that_others_read_is_refused():
    """A token that other users may know is no token."""
    settings = load_settings()
    settings.ensure_token()
    settings.token_file.chmod(0o644)
    with pytest.raises(DefinitionError) as caught:
        settings.ensure_token()
    assert caught.value.mistake.code == "token_file_open"


def test_an_empty_token_file_is_no_token():
    """An empty secret would let everybody in."""
    settings = load_settings()
    settings.token_file.parent.mkdir()
    settings.token_file.touch(mode=0o600)
    with pytest.raises(DefinitionError) as caught:
        settings.read_token()
    assert caught.value.mistake.code == "token_file_invalid"


@pytest.mark.parametrize("token", ["", " ", "\t\n"])
def test_an_empty_token_is_refused(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that everybody knows guards nothing: the service does not start with it."""
    monkeypatch.setenv("CBP_TOKEN", token)
    with pytest.raises(DefinitionError) as refused:
        load_settings()
    assert (refused.value.mistake.code, refused.value.mistake.where) == (
        "settings_invalid",
        "token",
    )


class MoreSettings(Settings):
    """Settings with one more secret, as a later version may have."""

    pager_key: SecretStr | None = None


def test_every_secret_field_is_masked_because_of_its_type(tmp_path: Path) -> None:
    """A new secret is in no list that somebody has to keep: it is shown as set or unset only."""
    unset = MoreSettings(root=tmp_path, token=SecretStr("canary-token"))
    given = MoreSettings(root=tmp_path, pager_key=SecretStr("canary-key"))
    assert (unset.effective()["pager_key"], unset.effective()["token"]) == (None, MASK)
    assert (given.effective()["pager_key"], given.effective()["token"]) == (MASK, None)
    assert unset.secret_values() == {"canary-token"}
    assert given.secret_values() == {"canary-key"}


def test_secret_values_have_the_token_file_and_the_passwords_of_addresses(tmp_path: Path) -> None:
    """A short password is left out: it would be found in ordinary words."""
    settings = load_settings(
        root=tmp_path,
        database_url="postgresql://cbp:canary@host/cbp",
        tables="s3a://user:cbp@bucket/tables",
        spark_conf={"spark.some.password": "canary-spark", "spark.some.name": "name"},
    )
    token = settings.ensure_token()
    assert settings.secret_values() == {token, "canary", "canary-spark"}


@pytest.mark.parametrize(
    "value",
    [
        "s3a://AKIA77:canary@bucket/tables",
        "https://canary0123456789abcdef@host/x",
        "abfs://host/x?sig=canary&part=1",
        "http://host/x?part=1&access_token=canary",
    ],
)
def test_credentials_in_uris_are_masked(value: str, tmp_path: Path) -> None:
    """In every setting, also where it is nested: user information, and secrets of a query."""
    settings = load_settings(root=tmp_path, spark_conf={"spark.jars.repositories": value})
    settings = settings.model_copy(update={"tables": value})
    shown = json.dumps(settings.effective())
    assert "canary" not in shown
    assert "host" in shown or "bucket" in shown


@pytest.mark.parametrize("text", ["token: [s3cr3t", "token: 's3cr3t", "a: b: s3cr3t", "\ts3cr3t"])
def test_a_settings_file_that_cannot_be_read_is_told_without_its_text(
    tmp_path: Path, text: str
) -> None:
    """The line that is wrong may hold a password; the error has its number instead."""
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(DefinitionError) as caught:
        load_settings(file)
    assert "settings.yaml" in str(caught.value)
    assert "line 1" in str(caught.value) or "line 2" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_unsafe_place_for_tables_is_told_without_credentials() -> None:
    """The message goes to the log and to the terminal."""
    for uri in ("s3a://key:s3cr3t@bucket/x", "abfss://c@a.example/?sig=s3cr3t"):
        with pytest.raises(FileSystemUnsafeError) as caught:
            files_for(uri)
        assert MASK in caught.value.message
        assert "s3cr3t" not in str(caught.value.as_dict())


@pytest.mark.parametrize(
    "values",
    [
        {"oidc_issuer": "https://id.example"},
        {"oidc_audience": "cbp"},
        {"oidc_issuer": "http://id.example", "oidc_audience": "cbp"},
        {"oidc_issuer": "ftp://id.example", "oidc_audience": "cbp"},
        {"oidc_issuer": "https://user:pw@id.example", "oidc_audience": "cbp"},
    ],
)
def test_half_of_a_provider_or_one_without_tls_is_refused(values: dict[str, Any]) -> None:
    """A token for any service, or keys that somebody can replace on the way: anybody gets in."""
    with pytest.raises(DefinitionError):
        load_settings(**values)


def test_a_provider_on_this_machine_needs_no_tls() -> None:
    """Nobody is on the way."""
    load_settings(oidc_issuer="http://127.0.0.1:8080/realm", oidc_audience="cbp")


@pytest.mark.parametrize("name", ["spark_conf", "oidc_scopes"])
def test_a_setting_that_is_no_json_is_named_without_its_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any other wrong setting."""
    monkeypatch.setenv(f"CBP_{name.upper()}", "hunter2")
    with pytest.raises(DefinitionError) as refused:
        load_settings()
    mistake = refused.value.mistake
    assert (mistake.code, mistake.where) == ("settings_invalid", name)
    assert "hunter2" not in str(refused.value.as_dict())


def test_a_token_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """A disk that is full in the middle leaves no draft beside the token file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            create_token_file(tmp_path / "token")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
