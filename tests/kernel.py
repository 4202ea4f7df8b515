"""Read a Delta table with Delta Kernel (Java), through the JVM of a Spark session.

Kernel reads log, files and vectors by itself: Spark lends its JVM, and no session. Its jars
come with delta-spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

__all__ = ["with_kernel"]

_GETTERS = {"string": "getString", "long": "getLong", "integer": "getInt", "double": "getDouble"}


def with_kernel(spark: Any, path: str, *columns: str) -> list[dict[str, Any]]:
    """Return the records of a table's newest version, in any order.

    Physical rows of each file, as the scan's state asks for them; Kernel then takes out those
    that its vector names, and adds the partition's values.

    Args:
        spark: Its JVM is used, and nothing else.
        path: The table's folder.
        columns: To return, of type STRING, BIGINT, INT or DOUBLE.
    """
    jvm = spark._jvm
    kernel = jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(jvm.org.apache.hadoop.conf.Configuration())
    snapshot = kernel.Table.forPath(engine, path).getLatestSnapshot(engine)
    scan, schema = snapshot.getScanBuilder().build(), snapshot.getSchema()
    getters = [
        (name, schema.indexOf(name), _GETTERS[schema.get(name).getDataType().toString()])
        for name in columns
    ]
    state = scan.getScanState(engine)
    actual = []
    for files in _each(scan.getScanFiles(engine)):
        for file in _each(files.getRows()):
            for batch in _each(_file(jvm, engine, state, file)):
                for row in _each(batch.getRows()):
                    actual.append(
                        {
                            name: None if row.isNullAt(at) else getattr(row, get)(at)
                            for name, at, get in getters
                        }
                    )
    return actual


def _file(jvm: Any, engine: Any, state: Any, file: Any) -> Any:
    """Return the batches of one file of a scan, with the rows that are alive selected."""
    internal = jvm.io.delta.kernel.internal
    utils, none = internal.util.Utils, jvm.java.util.Optional.empty()
    status = internal.InternalScanFileUtils.getAddFileStatus(file)
    wanted = internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
    physical = jvm.java.util.ArrayList()
    handler = engine.getParquetHandler()
    for read in _each(
        handler.readParquetFiles(utils.singletonCloseableIterator(status), wanted, none)
    ):
        physical.add(read.getData())
    batches = utils.toCloseableIterator(physical.iterator())
    return jvm.io.delta.kernel.Scan.transformPhysicalData(engine, state, file, batches)


def _each(iterator: Any) -> Iterator[Any]:
    with closing(iterator):
        while iterator.hasNext():
            yield iterator.next()
