"""Settings of the service: one object, from arguments, the environment, a file, or defaults.

Order of precedence: arguments, then environment variables `CBP_<NAME>`, then the file that
`CBP_CONFIG` or `load_settings(file=...)` names (YAML or TOML), then the defaults below, which suit
one machine. Paths that are not set are in `root`.

    CBP_ROOT=/srv/cbp CBP_PORT=8421 cbp serve

Guaranteed: the service listens to other machines only on request (`allow_remote`), and
`effective()` shows every value except secrets (tests/controller/test_settings.py).
Absent on purpose: settings of one dataflow, which belong in its document.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError
from pydantic_settings.sources import InitSettingsSource, PydanticBaseSettingsSource

from cbp.client.address import file_values, read_token_file, url_of
from cbp.errors import DefinitionError, Mistake
from cbp.errors.masks import (
    MASK,
    SECRET_NAME,
    mask_credentials,
    mask_database_url,
    secrets_of_address,
)
from cbp.model.flow.retention import FlowRetention
from cbp.model.plan.spark_or_worker import JOB_START_SECONDS
from cbp.model.source.bucket_prefix import BucketPrefix
from controller.secret_values import (
    address_paths,
    cloud_secrets,
    create_token_file,
    require_address,
)

__all__ = ["MASK", "Settings", "load_settings"]

DELAY_SECONDS_MAX = 24 * 3600
SECRET_PART_LENGTH_MIN = 6
"""In characters; a shorter password or path is found in ordinary words."""

_T = TypeVar("_T")


def _split(value: Any) -> Any:
    """Accept a list in the form `a,b`, as in environment variables."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


_Listed = Annotated[tuple[_T, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """Settings of an operator; the module header lists the sources of their values.

    Attributes:
        root: Folder of all files for which no other setting names a folder.
        tables: Folder of the tables of all dataflows.
        drop_root: Folder of the drop folders of all sources.
        cache: Folder of index copies, on this machine's own disk; the copies can be removed at any
            time.
        database_url: `sqlite:///file` or `postgresql+psycopg://user:password@host/name`.
        host: Address on which the service listens, and which `cbp` connects to.
        port: Port on which the service listens, and which `cbp` connects to.
        engine: `spark`, or `local` (without Spark, on this machine); both write the same files.
        worker_processes: Whether `engine=local` runs translators in processes of their own. Without
            them, a translator that crashes, calls `os._exit` or uses all memory ends the service.
        worker_memory_bytes_max: Memory limit of each of these processes, not counting mapped files;
            a translator that needs more gets a `MemoryError`. 0 means no limit.
        whole_run_bytes_max: Bytes of records that a loop within a run may hold in memory (the
            process needs 8 times as much); it may hold 32 times as much in temporary files.
        superstep_log_seconds: Shortest time between two snapshots of a loop within a run; after a
            kill, the next attempt continues from the last snapshot. 0: one after each superstep.
        loop_tasks_max: Most tasks into which a large loop within a run is split; 0: one for each
            slot. Tasks exchange messages, so a loop with few messages is faster in one task.
        allow_remote: Listen to other machines than this one.
        spark_master: Where Spark runs: `local[*]`, or the `spark://` URL of a cluster.
        spark_driver_memory: Memory of Spark's driver, such as `4g`.
        spark_conf: Further settings of Spark, as a JSON object.
        resident_workers: Processes beside a local Spark that do small runs without a job, at most
            one per slot; 0: every run is a job. Each takes some hundred megabytes while in use.
        job_start_seconds: Time that the start of a Spark job takes. A run without a shuffle uses
            resident workers if this time is more than a tenth of the run's estimated time; 0: no
            run does.
        plan_optimisations: Whether the service optimises plans in SQL beyond Spark's own rules.
            `off` gives the same results more slowly; use it to find out whether an error comes from
            the optimisation.
        parallel_runs_max: Concurrent runs over all dataflows.
        slow_run_seconds: A run, or the framing of an increment, stops counting for
            `parallel_runs_max` after this time, so that other runs can start. If there is still no
            slot for them, the slow run is cancelled and runs again later. 0 turns off both.
        slow_runs_max: Concurrent runs that do not count for `parallel_runs_max`.
        run_seconds_max: Time limit of one run, and of framing one increment; 0 means no limit. A
            stage may have its own.
        runnable_seconds_max: Time limit of one call of an author's Runnable; 0 means no limit.
        failures_max: Attempts of one run before its stage stops. Operating failures (a full disk,
            an unreachable database, a lost Spark) do not count: the run is retried until they are
            over.
        retry_delays_seconds: Pause after the first, second... failed attempt; the last value
            repeats.
        retry_seconds_max: Limit up to which the pause doubles for operating failures.
        lease_seconds: If the leader does not renew its lease for this time, another controller on
            the same PostgreSQL database becomes the leader.
        advertise_url: URL at which other machines reach this service; by default made from host and
            port.
        tick_seconds: Longest time between two ticks of the loop.
        settle_seconds: How long a dropped file must stay unchanged before it is taken.
        scan_seconds: Time between two listings of a drop folder that sends no events, such as one
            on NFS. Folders that send events are listed in turn, each once in 300 such periods.
        collect_every: Epochs of a dataflow between two garbage collections.
        scrub_days: Period in which everything on disk is read once to find damage; 0 means never.
        keep_versions_min: How many versions before a table's newest stay readable at any age.
        keep_versions_max: How many versions of a table stay readable at most, whatever their age.
        keep_hours: How long a version stays readable after a newer one has replaced it.
        keep_inputs_hours: How long an increment of a source is kept after all stages have read it;
            a dataflow may override this, and `keep_inputs_bytes`, for a source.
        keep_inputs_bytes: Most bytes that the increments of one source may take, whatever their
            age; 0 means no limit.
        keep_inputs_increments: Most increments of one source that are kept, whatever their age; 0
            means no limit.
        keep_finished_hours: How long a dropped file that was taken in stays in `finished`.
        keep_finished_bytes: Most bytes that such files of one source may take; 0 means no limit.
        keep_runs: Number of runs of a stage that stay listed, with the increments that they wrote.
        keep_log_runs: Number of runs whose log lines are kept.
        keep_log_hours: How long log lines of runs are kept.
        keep_log_bytes: Bytes that log lines of runs may take in all.
        dataflows_max: Most dataflows that can be registered, since each has folders that the
            service lists. Further dataflows that a restart or `cbp recover` finds continue to run.
        rebuild_share: Share of the time in which a rebuild beside works, and share of the slots
            that it uses.
        attempt_hours: Longest time for which a task may write; garbage collection leaves younger
            files alone.
        drain_seconds: How long a stop waits for runs that are under way.
        allowed_packages: Distributions whose translators may be named in a document.
        translators: Python files, and folders, whose translators may be named in a document too;
            see `controller.registry.translator_files`.
        sink_roots: Folders below which sinks may write; by default `<root>/sinks`.
        source_roots: Folders below which sources may read Delta tables; by default
            `<root>/sources`.
        sink_secrets: Folder of the secrets that sign webhooks of sinks; by default
            `<root>/secrets`.
        source_locations: Prefixes of buckets, such as `s3://bucket/orders/`, from which sources may
            take in objects; none by default.
        source_list_seconds: Time between two listings of such a location.
        s3_endpoint: Address of the service that hosts the buckets; by default AWS. Locations need
            `cbp[s3]`.
        s3_access_key_id, s3_secret_access_key: The key for the buckets. By default botocore finds
            one in `AWS_ACCESS_KEY_ID` and similar variables, in the file
            `AWS_SHARED_CREDENTIALS_FILE`, or by the machine's role.
        token: Bearer token of the API; by default the content of `token_file`.
        body_bytes_max: Size of the largest request, except uploads.
        upload_bytes_max: Size of the largest uploaded file.
        uploads_max: Concurrent uploads; further ones wait.
        requests_per_second_max: Requests a second of one token, in each process; 0: any number.
        event_streams_max: Clients that may follow the events of one instance at a time.
        events_max: How many events are kept at most.
        events_hours: How long events are kept; a client that was away for longer must read
            everything again.
        client_idle_seconds: How long a client may send nothing in the middle of a body.
        file_bytes_max: Size of the largest dropped file, as it arrives, compressed or not.
        decompressed_bytes_max: Size of the largest dropped file, decompressed.
        line_bytes_max: Size of the longest line, or record of a CSV file.
        decompression_ratio_max: Largest ratio of decompressed to compressed bytes of one dropped
            file.
        file_seconds_max: Processor time for one dropped file, in addition to a second for each MiB
            of it that was read or decoded.
        file_memory_bytes_max: Memory of the process that reads one dropped file.
        readers: Processes that answer reads over REST, besides the service's own. By default one
            less than the number of cores, at least 1 and at most 4, started once clients send many
            requests.
        reader_processes: Whether dropped files are read in separate processes. Without them, a file
            that cannot be read in finite time or memory can hang or end the service.
        query_seconds, query_memory_bytes: Limits of time and memory of one SQL query; beyond them
            it is stopped.
        query_rows_max: Most rows that one SQL query returns; the answer says if there were more.
        queries_max: Concurrent SQL queries.
        page_size_default: Items in one page of a list over REST, if the client gives no limit.
        page_size_max: Most items in one page of a list over REST, however many are asked for.
        alert_webhook_url: Address to which alerts are sent as JSON by POST; its path can contain
            secrets.
        alert_email_to: Addresses to which alerts are sent by e-mail; needs `smtp_url`.
        alert_email_from: The sender of these e-mails.
        smtp_url: `smtp://user:password@host:587` or `smtps://...`, the server that sends them.
        alert_lag_seconds: A dataflow is late if its oldest waiting increment is older than this; a
            paused dataflow, if it is older than four times this. 0: never.
        alert_repeat_hours: Time after which an alert that persists is sent again; 0 means never.
        otlp_endpoint: Base URL of an OTLP/HTTP receiver that gets a trace of each run, such as
            `http://127.0.0.1:4318`; needs `cbp[telemetry]`.
        openlineage_url: Base URL of an OpenLineage receiver that gets an event for each run; needs
            `cbp[telemetry]`.
        openlineage_api_key: Bearer token for the OpenLineage receiver.
        session_hours: How long a browser stays signed in at most.
        session_idle_minutes: How long a browser stays signed in without a request.
        tls_cert, tls_key: Certificate chain and private key, as PEM files. With them the service
            speaks HTTPS only; they are read again when they are replaced.
        ca: PEM file of certificate authorities that the commands trust; if it is set, they use
            HTTPS. By default they trust the authorities of the system, and `tls_cert` itself.
        oidc_issuer: Address of an OpenID Connect provider whose tokens are accepted, too.
        oidc_audience: Audience (`aud`) that such a token must have.
        oidc_scope_claim: The claim with the roles of the token's subject, such as
            `realm_access.roles`.
        oidc_scopes: Maps roles to scopes (`viewer`, `operator`, `admin`).
        oidc_dataflows_claim: The claim with the dataflows that the token may access; empty: all of
            them.
        oidc_subject_claim: The claim that gives the subject's name in the audit log.
        outbound_hosts: Host names, addresses and networks of your own network to which the service
            may send requests.
        secure_cookies: Whether the session cookie is sent by TLS only. This is automatic if a
            request came by https; set it behind a proxy that terminates TLS without telling the
            service.
        keep_audit_days: How long entries of the audit log stay.
        audit_rows_max: How many entries of the audit log stay at most.
        umask: Permissions that new files of `cbp serve` and its workers do not get, in octal. Use
            `007` if the workers of a cluster run as different users of one group.
        log_format: Format of the lines of the log.
        log_level: Lowest level of lines that are written to the log.
        token_file: File with the admin's token; created at the first start, with 256 random bits,
            readable by its owner only.
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
    retry_delays_seconds: _Listed[float] = Field((1.0, 5.0), min_length=1)
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
    keep_inputs_increments: int = Field(default=0, ge=0)
    keep_finished_hours: float = Field(default=7 * 24.0, ge=0, le=24 * 3660)
    keep_finished_bytes: int = Field(default=0, ge=0)
    keep_runs: int = Field(default=10_000, ge=100, le=1_000_000_000)
    keep_log_runs: int = Field(default=10_000, ge=1, le=10_000_000)
    keep_log_hours: float = Field(default=7 * 24.0, gt=0, le=24 * 3660)
    keep_log_bytes: int = Field(default=1 << 30, ge=1 << 20)
    dataflows_max: int = Field(default=1_000, ge=1, le=1_000_000)
    rebuild_share: float = Field(default=0.5, ge=0.05, le=1)
    attempt_hours: float = Field(default=1.0, ge=0, le=24 * 366)
    drain_seconds: float = Field(default=30.0, ge=0, le=3600)
    allowed_packages: _Listed[str] = ("cbp",)
    translators: _Listed[Path] = ()
    sink_roots: _Listed[Path] = ()
    source_roots: _Listed[Path] = ()
    sink_secrets: Path = Path()
    source_locations: _Listed[str] = ()
    source_list_seconds: float = Field(default=30.0, ge=1, le=24 * 3600)
    s3_endpoint: str = Field(default="", pattern=r"^(https?://[^/@\s?#]+/?)?$")
    s3_access_key_id: SecretStr | None = None
    s3_secret_access_key: SecretStr | None = None
    token: SecretStr | None = None
    token_file: Path = Path()
    body_bytes_max: int = Field(default=1 << 20, ge=1024)
    upload_bytes_max: int = Field(default=1 << 30, ge=1024)
    uploads_max: int = Field(default=16, ge=1, le=1000)
    requests_per_second_max: int = Field(default=0, ge=0, le=1_000_000)
    event_streams_max: int = Field(default=100, ge=1, le=10_000)
    events_max: int = Field(default=100_000, ge=100, le=100_000_000)
    events_hours: float = Field(default=24.0, gt=0, le=24 * 366)
    client_idle_seconds: float = Field(default=60.0, gt=0, le=3600)
    file_bytes_max: int = Field(default=256 << 30, ge=1024)
    decompressed_bytes_max: int = Field(default=1 << 40, ge=1024)
    decompression_ratio_max: int = Field(default=250, ge=2)
    line_bytes_max: int = Field(default=16 << 20, ge=1024)
    file_seconds_max: float = Field(default=60.0, gt=0)
    file_memory_bytes_max: int = Field(default=2 << 30, ge=64 << 20)
    readers: int | None = Field(default=None, ge=0, le=64)
    reader_processes: bool = True
    worker_processes: bool = True
    worker_memory_bytes_max: int = Field(default=0, ge=0)
    loop_tasks_max: int = Field(default=1, ge=0, le=1_000)
    whole_run_bytes_max: int = Field(default=2 << 30, ge=64 << 20)
    superstep_log_seconds: float = Field(default=2.0, ge=0, le=3600)
    page_size_default: int = Field(default=100, ge=1, le=500)
    page_size_max: int = Field(default=500, ge=1, le=500)
    query_seconds: float = Field(default=30.0, ge=1, le=3600)
    query_rows_max: int = Field(default=10_000, ge=1, le=1_000_000)
    query_memory_bytes: int = Field(default=512 << 20, ge=64 << 20)
    queries_max: int = Field(default=2, ge=1, le=64)
    alert_webhook_url: SecretStr | None = None
    alert_email_to: _Listed[str] = ()
    alert_email_from: str = Field(default="cbp@localhost", max_length=320)
    smtp_url: SecretStr | None = None
    alert_lag_seconds: float = Field(default=900.0, ge=0, le=366 * 24 * 3600)
    alert_repeat_hours: float = Field(default=4.0, ge=0, le=366 * 24)
    otlp_endpoint: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    openlineage_url: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    openlineage_api_key: SecretStr | None = None
    session_hours: float = Field(default=12.0, gt=0, le=24 * 31)
    session_idle_minutes: float = Field(default=120.0, ge=1, le=31 * 24 * 60)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca: Path | None = None
    oidc_issuer: str = Field(default="", pattern=r"^(https?://[^/@\s?#]+[^@\s?#]*)?$")
    oidc_audience: str = Field(default="", max_length=500)
    oidc_scope_claim: str = Field(default="roles", min_length=1, max_length=200)
    oidc_scopes: dict[str, Literal["viewer", "operator", "admin"]] = {
        "cbp-viewer": "viewer",
        "cbp-operator": "operator",
        "cbp-admin": "admin",
    }
    oidc_dataflows_claim: str = Field(default="", max_length=200)
    oidc_subject_claim: str = Field(default="sub", min_length=1, max_length=200)
    outbound_hosts: _Listed[str] = ()
    secure_cookies: bool = False
    keep_audit_days: float = Field(default=90.0, ge=1, le=3660)
    audit_rows_max: int = Field(default=1_000_000, ge=1_000, le=1_000_000_000)
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
        from_file = InitSettingsSource(settings_cls, file_values(os.environ.get("CBP_CONFIG")))
        return init_settings, env_settings, from_file

    @field_validator("source_locations")
    @classmethod
    def _locations(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(BucketPrefix.parse(one)) for one in value)

    @field_validator("token")
    @classmethod
    def _not_blank(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse an empty token: it would let everybody in."""
        if value is not None and not value.get_secret_value().strip():
            message = "is empty; set a token, or unset CBP_TOKEN to use the token file"
            raise ValueError(message)
        return value

    @field_validator("alert_webhook_url", "smtp_url")
    @classmethod
    def _address(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        scheme = "smtp" if info.field_name == "smtp_url" else "http"
        return require_address(value, (scheme, f"{scheme}s"))

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
            message = f"each delay must be from 0 to {DELAY_SECONDS_MAX} seconds"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Complete paths in `root` and other defaults; refuse unsafe values."""
        root = _absolute(self.root)
        defaults: dict[str, Any] = {
            "root": root,
            "tables": self.tables or str(root / "tables"),
            "drop_root": _placed(self.drop_root, root / "drop"),
            "cache": _placed(self.cache, root / "cache"),
            "token_file": _placed(self.token_file, root / "token"),
            "database_url": self.database_url or f"sqlite:///{root / 'cbp.db'}",
            "translators": tuple(map(_absolute, self.translators)),
            "sink_roots": tuple(map(_absolute, self.sink_roots)) or (root / "sinks",),
            "source_roots": tuple(map(_absolute, self.source_roots)) or (root / "sources",),
            "sink_secrets": _placed(self.sink_secrets, root / "secrets"),
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)
        if self.alert_email_to and self.smtp_url is None:
            message = (
                "alert_email_to is set, but smtp_url is not: set smtp_url to the server that sends "
                "the e-mails"
            )
            raise ValueError(message)
        if not self.advertise_url:
            object.__setattr__(self, "advertise_url", self.url)
        if bool(self.oidc_issuer) is not bool(self.oidc_audience):
            message = "oidc_issuer and oidc_audience need each other; set both, or neither"
            raise ValueError(message)
        issuer = urlsplit(self.oidc_issuer)
        if issuer.scheme == "http" and not _is_loopback(issuer.hostname or ""):
            message = "oidc_issuer must begin with https://, since its keys decide who can sign in"
            raise ValueError(message)
        for one, other in (("tls_cert", "tls_key"), ("s3_access_key_id", "s3_secret_access_key")):
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                message = f"{one} and {other} are a pair; set both, or neither"
                raise ValueError(message)
        if self.page_size_default > self.page_size_max:
            message = "page_size_default must not be larger than page_size_max"
            raise ValueError(message)
        if not (self.allow_remote or _is_loopback(self.host)):
            message = (
                f"host {self.host!r} can be reached from other machines; "
                "set CBP_ALLOW_REMOTE=true if that is intended, or use 127.0.0.1"
            )
            raise ValueError(message)
        return self

    @property
    def url(self) -> str:
        """Address at which clients on this machine reach the service."""
        return url_of(
            self.host, self.port, uses_tls=self.uses_tls, advertise_url=self.advertise_url
        )

    @property
    def uses_tls(self) -> bool:
        """Whether clients speak HTTPS with the service itself."""
        return self.tls_cert is not None or self.ca is not None

    @property
    def input_retention(self) -> FlowRetention:
        """How long inputs of sources are kept if the dataflow declares nothing."""
        return FlowRetention(
            self.keep_inputs_hours * 3600, self.keep_inputs_bytes, self.keep_inputs_increments
        )

    def effective(self) -> dict[str, Any]:
        """Return every setting as a JSON value, with secrets masked."""
        secret = self._secret_fields()
        shown: dict[str, Any] = self.model_dump(mode="json", exclude=set(secret))
        shown |= {name: None if value is None else MASK for name, value in secret.items()}
        shown["spark_conf"] = {
            name: MASK if SECRET_NAME.search(name) else value
            for name, value in self.spark_conf.items()
        }
        masked: dict[str, Any] = mask_credentials(shown)
        masked["database_url"] = mask_database_url(self.database_url)
        return masked

    def secret_values(self) -> frozenset[str]:
        """Return the values that no log and no listing may show; none is empty.

        These are the secret settings, the token of the token file, cloud keys that botocore
        finds, passwords in addresses, and the paths of secret addresses, since messages may
        quote a path alone. Passwords and paths of fewer than `SECRET_PART_LENGTH_MIN`
        characters are left out.
        """
        secret = [value.get_secret_value() for value in self._secret_fields().values() if value]
        spark = self.spark_conf.items()
        texts = [value for _, value in self if isinstance(value, str)]
        values = {*secret, self.read_token() or "", *cloud_secrets(os.environ)}
        values.update(value for name, value in spark if SECRET_NAME.search(name))
        parts = {path for address in secret for path in address_paths(address)}
        for address in (*secret, *texts, *self.spark_conf.values()):
            parts.update(secrets_of_address(address))
        values.update(part for part in parts if len(part) >= SECRET_PART_LENGTH_MIN)
        return frozenset(filter(None, values))

    def _secret_fields(self) -> dict[str, SecretStr | None]:
        fields = type(self).model_fields.items()
        return {name: getattr(self, name) for name, field in fields if _is_secret(field.annotation)}

    def read_token(self) -> str | None:
        """Return the token of the API, or `None` if there is none yet.

        Raises:
            DefinitionError: Rule `token_file_open` if other users may read our file,
                `token_file_invalid` if it is empty or cannot be read.
        """
        if self.token is not None:
            return self.token.get_secret_value()
        return read_token_file(self.token_file)

    def ensure_token(self) -> str:
        """Return the token of the API; create it at the first start.

        Safe if a second process starts at the same time: one of the two tokens wins, and both
        processes return it.
        """
        if (token := self.read_token()) is None:
            create_token_file(self.token_file)
            token = self.read_token()
            assert token is not None
        return token


def load_settings(file: Path | None = None, **values: Any) -> Settings:
    """Return the effective settings; `values` take precedence over the environment and the file.

    `file`, YAML or TOML, is read instead of the one that `CBP_CONFIG` names.

    Raises:
        DefinitionError: Rule `settings_invalid`, naming every wrong setting, or
            `settings_file_invalid`, naming the file and what is wrong with it.
    """
    if file is not None:
        names = {name for name in Settings.model_fields if f"CBP_{name.upper()}" in os.environ}
        from_file = {n: v for n, v in file_values(str(file)).items() if n not in names}
        values = {**from_file, **values}
    try:
        return Settings(**values)
    except ValidationError as error:
        # Keep the values out of the message: one of them may be a secret.
        lines = [f"{_name(line['loc'])}: {line['msg']}" for line in error.errors()]
        where = _name(error.errors()[0]["loc"])
        message = "; ".join(lines).removeprefix(f"{where}: ")
        raise DefinitionError(Mistake("settings_invalid", where, message)) from None
    except SettingsError as error:
        where = next((n for n in Settings.model_fields if f'"{n}"' in str(error)), "settings")
        message = (
            f"CBP_{where.upper()} is not valid JSON; expected an object, such as "
            '{"name": "value"}'
        )
        raise DefinitionError(Mistake("settings_invalid", where, message)) from None


def _is_secret(annotation: object) -> bool:
    """Return whether values of a type are secrets: `SecretStr`, or `SecretStr | None`."""
    return annotation is SecretStr or SecretStr in get_args(annotation)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _placed(path: Path, default: Path) -> Path:
    return default if path == Path() else _absolute(path)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "settings"
