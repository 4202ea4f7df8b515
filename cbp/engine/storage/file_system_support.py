"""Which implementation of `put_if_absent` is safe on a file system; pure.

A log entry must have exactly one writer. What ensures that depends on the file system:

    plain path, file:         link(2), `cbp.engine.storage.files.LocalFiles`
    hdfs, abfs, gs, ...       Delta's LogStore; refused for now, because tasks write to POSIX paths
    s3, s3a, s3n              a LogStore that arbitrates through DynamoDB, if one is configured

Refused by name: Delta's LogStore on `file:`, which lets two processes both create the same file
(tests/spark/test_log_store.py shows it), and the single-driver store on S3, which keeps its locks
in one JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from cbp.errors import FileSystemUnsafeError

LOCAL = ("", "file")
_AZURE = "io.delta.storage.AzureLogStore"
_SAFE = {
    "hdfs": "io.delta.storage.HDFSLogStore",
    "abfs": _AZURE,
    "abfss": _AZURE,
    "wasb": _AZURE,
    "wasbs": _AZURE,
    "adl": _AZURE,
    "gs": "io.delta.storage.GCSLogStore",
}
_S3 = ("s3", "s3a", "s3n")
_ONE_WRITER = ("S3SingleDriverLogStore", "LocalLogStore")
_S3_HOW = (
    "configure {setting}=io.delta.storage.S3DynamoDBLogStore with its table "
    "(spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName, .ddb.region) and the package "
    "io.delta:delta-storage-s3-dynamodb"
)


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case, `""` for a plain path."""
    return urlsplit(uri).scheme.lower()


def setting_of(scheme: str) -> str:
    """Return the Spark setting that names a scheme's LogStore."""
    return f"spark.delta.logStore.{scheme}.impl"


def log_store_class(uri: str, settings: Mapping[str, str]) -> str:
    """Return the Java class of the LogStore that is safe between processes for `uri`.

    Args:
        uri: Where the tables lie.
        settings: Spark's settings; a configured LogStore takes precedence.

    Raises:
        FileSystemUnsafeError: There is none; the message says what to configure.
    """
    scheme = scheme_of(uri)
    if scheme in LOCAL:
        raise FileSystemUnsafeError(
            uri, scheme, "Delta's LogStore lets two processes write one entry there", "use link(2)"
        )
    how = _S3_HOW if scheme in _S3 else "configure {setting} to a LogStore that is"
    how = how.format(setting=setting_of(scheme))
    class_name = settings.get(setting_of(scheme)) or _SAFE.get(scheme)
    if class_name is None:
        raise FileSystemUnsafeError(uri, scheme, "nothing there arbitrates between writers", how)
    if class_name.rpartition(".")[2] in _ONE_WRITER:
        why = f"{class_name} is safe within one process only"
        raise FileSystemUnsafeError(uri, scheme, why, how)
    return class_name
