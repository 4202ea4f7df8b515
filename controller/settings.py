"""Settings of the service: one object, from arguments, the environment, a file, or defaults.

Order of precedence: arguments, then environment variables `CBP_<NAME>`, then the file that
`CBP_CONFIG` or `load_settings(file=...)` names (YAML or TOML), then the defaults below, which suit
one machine. Paths that are not given lie in `root`.

    CBP_ROOT=/srv/cbp CBP_PORT=8421 cbp serve

Guaranteed: the service listens to other machines only on request (`allow_remote`), and
`effective()` shows every value except secrets (tests/controller/test_settings.py).
Absent on purpose: settings of one dataflow, which belong in its document.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from pydantic_settings.sources import InitSettingsSource, PydanticBaseSettingsSource

from cbp.errors import DefinitionError, Mistake
from cbp.errors.masks import MASK, SECRET_NAME, mask_credentials, mask_database_url
from cbp.model.dataflow.lanes import JOB_START_SECONDS
from cbp.model.flow.retention import FlowRetention

__all__ = ["MASK", "Settings", "load_settings"]

DELAY_SECONDS_MAX = 24 * 3600
TOKEN_BYTES = 32


class Settings(BaseSettings):
    """What an operator may choose; see the module header for where values come from.

    Attributes:
        root: Folder of everything that has no setting of its own.
        tables: Folder or URI of the tables of all dataflows.
        database_url: `sqlite:///file` or `postgresql+psycopg://user:password@host/name`.
        engine: `spark`, or `local`: the same files without Spark, on this machine.
        worker_processes: Whether `engine=local` runs translators in processes of their own. Without
            them, one that crashes, calls `os._exit` or takes all memory takes the service with it.
        worker_memory_bytes_max: Memory of such a process, without the files that it maps; a
            translator that needs more gets a `MemoryError`. 0: no limit.
        allow_remote: Listen to other machines than this one.
        resident_workers: Processes beside a local Spark that do small runs without a job, at most
            one per slot; 0: every run is a job. Each takes some hundred megabytes while in use.
        job_start_seconds: What the start of a Spark job costs here. A run without a shuffle goes to
            resident workers while this is more than a tenth of its estimated time; 0: no run does.
        plan_optimisations: Whether plans in SQL are optimised beyond what Spark does. `off` shows
            whether a wrong result or an error comes from there; results are the same, but slower.
        parallel_runs_max: Concurrent runs over all dataflows.
        slow_run_seconds: A run that takes longer no longer counts for `parallel_runs_max`, so other
            runs start beside it; if they still cannot run, it gives way. 0: neither. Framing that
            takes longer no longer counts either.
        slow_runs_max: Concurrent runs that do not count for `parallel_runs_max`.
        run_seconds_max: Time limit of one run, and of framing one increment; 0: none. A stage
            may have its own.
        runnable_seconds_max: Time limit of one answer of an author's Runnable; 0: none.
        failures_max: Tries of one run before its stage stops. Operating failures (a full disk, an
            unreachable database, a lost Spark) do not count: they are retried for as long as they
            last.
        retry_delays_seconds: Pause after the first, second... failed try; the last one repeats.
        retry_seconds_max: Limit up to which the pause doubles for operating failures.
        lease_seconds: After this time without a sign of the leader, another controller on the same
            PostgreSQL database takes over.
        advertise_url: Where other machines reach this service; by default `url`.
        tick_seconds: Longest time between two ticks of the loop.
        settle_seconds: How long a dropped file must stay unchanged before it is taken.
        scan_seconds: Time between two listings of the drop folders.
        collect_every: Epochs of a dataflow between two garbage collections.
        scrub_days: Period in which everything on disk is read once to find damage; 0: never.
        keep_versions_min, keep_versions_max: How many versions of a table before the newest stay
            readable at least, however old, and at most, however young.
        keep_hours: How long a version stays readable after a newer one has replaced it.
        keep_inputs_hours: How long an increment of a source is kept that everything has read; a
            dataflow may override this, and `keep_inputs_bytes`, for a source.
        keep_inputs_bytes: Bytes that the increments of one source may take, however young; 0: any.
        keep_finished_hours, keep_finished_bytes: The same for dropped files that were taken in.
        keep_runs: Runs of a stage that stay listed, with the increments that they wrote.
        dataflows_max: Dataflows that may be registered; each has folders that are listed, and
            tables. More that a restart or `cbp recover` finds go on.
        attempt_hours: Longest time that a task may write; for this long its files are left alone.
        drain_seconds: How long a stop waits for runs that are under way.
        allowed_packages: Distributions whose translators may be named in a document.
        token: Bearer token of the API; by default the content of `token_file`.
        body_bytes_max, upload_bytes_max: Largest request; largest uploaded file.
        uploads_max: Concurrent uploads; further ones wait.
        client_idle_seconds: How long a client may send nothing in the middle of a body.
        file_bytes_max, decompressed_bytes_max, line_bytes_max: Limits of one dropped file.
        decompression_ratio_max: Decompressed to compressed bytes of one dropped file, at most.
        file_seconds_max: Processor time for one dropped file, in addition to a second for each MiB
            of it that was read or decoded.
        file_memory_bytes_max: Memory of the process that reads one dropped file.
        reader_processes: Whether files are read in processes that can be ended. Without them, a
            file that takes for ever, or all memory, takes the service with it.
        umask: Permissions that new files of `cbp serve` and its workers do not get, in octal. Use
            `007` if the workers of a cluster run as other users of one group.
        token_file: Created at the first start, with 256 random bits, readable by the owner only.
    """

    model_config = SettingsConfigDict(env_prefix="CBP_", extra="forbid", validate_default=True)

    root: Path = Path("cbp-data")
    tables: str = ""
    drop_root: Path = Path()
    cache: Path = Path()
    database_url: str = Field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = Field(default=8420, ge=1, le=65535)
    allow_remote: bool = False
    engine: Literal["spark", "local"] = "spark"
    spark_master: str = "local[*]"
    spark_driver_memory: str = Field(default="1g", pattern=r"^[1-9][0-9]*[kmgtKMGT]$")
    spark_conf: dict[str, str] = Field(default_factory=dict, repr=False)
    resident_workers: int = Field(default=4, ge=0, le=64)
    job_start_seconds: float = Field(default=JOB_START_SECONDS, ge=0, le=60)
    plan_optimisations: bool = True
    parallel_runs_max: int = Field(default=2, ge=1, le=64)
    slow_run_seconds: float = Field(default=120.0, ge=0, le=30 * 24 * 3600)
    slow_runs_max: int = Field(default=8, ge=0, le=64)
    run_seconds_max: float = Field(default=2 * 3600.0, ge=0, le=30 * 24 * 3600)
    runnable_seconds_max: float = Field(default=60.0, ge=0, le=24 * 3600)
    failures_max: int = Field(default=3, ge=1, le=100)
    retry_delays_seconds: Annotated[tuple[float, ...], NoDecode] = Field((1.0, 5.0), min_length=1)
    retry_seconds_max: float = Field(default=300.0, gt=0, le=24 * 3600)
    lease_seconds: float = Field(default=5.0, ge=1, le=600)
    advertise_url: str = Field(default="", pattern=r"^(https?://[^/@\s]+)?$")
    tick_seconds: float = Field(default=1.0, gt=0, le=3600)
    settle_seconds: float = Field(default=1.0, ge=0, le=3600)
    scan_seconds: float = Field(default=1.0, gt=0, le=3600)
    collect_every: int = Field(default=100, ge=1, le=1_000_000)
    scrub_days: float = Field(default=7.0, ge=0, le=366)
    keep_versions_min: int = Field(default=20, ge=0, le=1_000_000)
    keep_versions_max: int = Field(default=10_000, ge=0, le=1_000_000)
    keep_hours: float = Field(default=24.0, ge=0, le=24 * 366)
    keep_inputs_hours: float = Field(default=7 * 24.0, ge=0, le=24 * 3660)
    keep_inputs_bytes: int = Field(default=0, ge=0)
    keep_finished_hours: float = Field(default=7 * 24.0, ge=0, le=24 * 3660)
    keep_finished_bytes: int = Field(default=0, ge=0)
    keep_runs: int = Field(default=10_000, ge=100, le=1_000_000_000)
    dataflows_max: int = Field(default=1_000, ge=1, le=1_000_000)
    attempt_hours: float = Field(default=1.0, ge=0, le=24 * 366)
    drain_seconds: float = Field(default=30.0, ge=0, le=3600)
    allowed_packages: Annotated[tuple[str, ...], NoDecode] = ("cbp",)
    token: SecretStr | None = None
    token_file: Path = Path()
    body_bytes_max: int = Field(default=1 << 20, ge=1024)
    upload_bytes_max: int = Field(default=1 << 30, ge=1024)
    uploads_max: int = Field(default=16, ge=1, le=1000)
    client_idle_seconds: float = Field(default=60.0, gt=0, le=3600)
    file_bytes_max: int = Field(default=256 << 30, ge=1024)
    decompressed_bytes_max: int = Field(default=1 << 40, ge=1024)
    decompression_ratio_max: int = Field(default=250, ge=2)
    line_bytes_max: int = Field(default=16 << 20, ge=1024)
    file_seconds_max: float = Field(default=60.0, gt=0)
    file_memory_bytes_max: int = Field(default=2 << 30, ge=64 << 20)
    reader_processes: bool = True
    worker_processes: bool = True
    worker_memory_bytes_max: int = Field(default=0, ge=0)
    page_size_default: int = Field(default=100, ge=1, le=500)
    page_size_max: int = Field(default=500, ge=1, le=500)
    umask: str = Field(default="077", pattern=r"^0?[0-7]{3}$")
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, the environment and the file, in this order."""
        del dotenv_settings, file_secret_settings
        from_file = InitSettingsSource(settings_cls, _file_values(os.environ.get("CBP_CONFIG")))
        return init_settings, env_settings, from_file

    @field_validator("allowed_packages", "retry_delays_seconds", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Accept a list as `a,b`, as environment variables hold it."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("token")
    @classmethod
    def _not_blank(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse an empty token: it would let everybody in."""
        if value is not None and not value.get_secret_value().strip():
            message = "is empty; set a token, or unset CBP_TOKEN: the token file is used then"
            raise ValueError(message)
        return value

    @field_validator("spark_conf")
    @classmethod
    def _no_blank_secret(cls, value: dict[str, str]) -> dict[str, str]:
        blank = [name for name in value if name.endswith("secret") and not value[name].strip()]
        if blank:
            message = f"the secret {', '.join(sorted(blank))} is empty; set it or leave it out"
            raise ValueError(message)
        return value

    @field_validator("retry_delays_seconds")
    @classmethod
    def _not_negative(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 <= delay <= DELAY_SECONDS_MAX for delay in value):
            message = f"a delay is from 0 to {DELAY_SECONDS_MAX} seconds"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Complete paths in `root` and other defaults; refuse unsafe values."""
        root = self.root.expanduser().absolute()
        defaults: dict[str, Any] = {
            "root": root,
            "tables": self.tables or str(root / "tables"),
            "drop_root": _placed(self.drop_root, root / "drop"),
            "cache": _placed(self.cache, root / "cache"),
            "token_file": _placed(self.token_file, root / "token"),
            "database_url": self.database_url or f"sqlite:///{root / 'cbp.db'}",
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)
        if not self.advertise_url:
            object.__setattr__(self, "advertise_url", self.url)
        if self.page_size_default > self.page_size_max:
            message = "page_size_default is above page_size_max"
            raise ValueError(message)
        if not (self.allow_remote or _is_loopback(self.host)):
            message = (
                f"host {self.host!r} can be reached from other machines; "
                "set CBP_ALLOW_REMOTE=true if that is meant, or use 127.0.0.1"
            )
            raise ValueError(message)
        return self

    @property
    def url(self) -> str:
        """Address at which clients on this machine reach the service."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def input_retention(self) -> FlowRetention:
        """How long inputs of sources are kept if the dataflow does not say."""
        return FlowRetention(self.keep_inputs_hours * 3600, self.keep_inputs_bytes)

    def effective(self) -> dict[str, Any]:
        """Return every setting as a JSON value, with secrets masked."""
        shown: dict[str, Any] = self.model_dump(mode="json", exclude={"token"})
        shown["token"] = MASK if self.token is not None else None
        shown["spark_conf"] = {
            name: MASK if SECRET_NAME.search(name) else value
            for name, value in self.spark_conf.items()
        }
        masked: dict[str, Any] = mask_credentials(shown)
        masked["database_url"] = mask_database_url(self.database_url)
        return masked

    def read_token(self) -> str | None:
        """Return the token of the API, or `None` if there is none yet.

        Raises:
            DefinitionError: Rule `token_file_open` if other users may read our file,
                `token_file_invalid` if it is empty or cannot be read.
        """
        if self.token is not None:
            return self.token.get_secret_value()
        try:
            status = self.token_file.stat()
            text = self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            message = f"{self.token_file}: {error}"
            raise _wrong(message, rule="token_file_invalid", where="token_file") from error
        # A file of another owner is a mounted secret: its permissions are not ours to judge.
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            message = f"other users may read {self.token_file}; run: chmod 600 {self.token_file}"
            raise _wrong(message, rule="token_file_open", where="token_file")
        if not text:
            message = f"{self.token_file} is empty; remove it"
            raise _wrong(message, rule="token_file_invalid", where="token_file")
        return text

    def ensure_token(self) -> str:
        """Return the token of the API; create it at the first start.

        Safe if a second process starts at the same time: one of the two tokens wins, and both
        processes return it.

        Raises:
            DefinitionError: See `read_token`.
        """
        token = self.read_token()
        if token is not None:
            return token
        self.token_file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.token_file.with_name(f".{self.token_file.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self.token_file)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        made = self.read_token()
        assert made is not None
        return made


def load_settings(file: Path | None = None, **values: Any) -> Settings:
    """Return the effective settings.

    Args:
        file: YAML or TOML file to read instead of the one that `CBP_CONFIG` names.
        values: Settings that take precedence over the environment and the file.

    Raises:
        DefinitionError: Rule `settings_invalid`, naming every wrong setting, or
            `settings_file_invalid`, naming the file and what is wrong with it.
    """
    if file is not None:
        kept = {name for name in Settings.model_fields if f"CBP_{name.upper()}" in os.environ}
        from_file = {n: v for n, v in _file_values(str(file)).items() if n not in kept}
        values = {**from_file, **values}
    try:
        return Settings(**values)
    except ValidationError as error:
        # Keep the values out of the message: one of them may be a secret.
        lines = [f"{_name(line['loc'])}: {line['msg']}" for line in error.errors()]
        where = _name(error.errors()[0]["loc"])
        raise _wrong("; ".join(lines), rule="settings_invalid", where=where) from None


def _file_values(name: str | None) -> dict[str, Any]:
    if not name:
        return {}
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        # Without the text of the line, which may hold a password.
        mark = error.problem_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        message = f"{error.problem or 'is no YAML'}{where}"
        raise _wrong(message, rule="settings_file_invalid", where=str(path)) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong(str(error), rule="settings_file_invalid", where=str(path)) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        message = "expected `name: value` pairs"
        raise _wrong(message, rule="settings_file_invalid", where=str(path))
    return values


def _placed(path: Path, default: Path) -> Path:
    return default if path == Path() else path.expanduser().absolute()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "settings"


def _wrong(message: str, *, rule: str, where: str) -> DefinitionError:
    return DefinitionError(Mistake(rule, where, message))
