"""The whole graph from scratch on Spark, in DataFrames: shows the work that increments save.

Clustering counts triangles. Each edge is directed from its end with fewer neighbours to the other
end, so that hubs begin few pairs. Two edges with the same beginning form a triangle if a third
edge closes them. PageRank repeats its formula over all links, until the sum of all changes is
within the dataflow's tolerance.

Best settings found: links kept in memory, partitioned by their source, so that an iteration
shuffles only partial sums; one job per iteration; two partitions per slot; adaptive execution off
for the many small jobs of PageRank; no statistics collected.
"""

from __future__ import annotations

from typing import Any

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.comparison.result_comparison import Values
from tests.bench.workloads.graph import edge_table
from tests.bench.workloads.graph_workloads import DAMPING, Clustering, GraphWorkload, PageRank
from tests.bench.workloads.workload import Arrival, write_arrival

__all__ = ["WholeGraphCandidate"]

PARTITIONS_PER_SLOT = 2


class WholeGraphCandidate:
    """All links, and one Delta table `(node, value)`; see `candidates.candidate`."""

    name, form = "recompute", "sql"

    def __init__(self, place: Place, workload: GraphWorkload) -> None:
        self.state_keys = 0
        self._place, self._workload = place, workload
        self._table = str(place.folder / "values")
        self._partitions = PARTITIONS_PER_SLOT * place.slots
        self._session = place.session(
            {
                "spark.sql.adaptive.enabled": str(isinstance(workload, Clustering)).lower(),
                "spark.sql.shuffle.partitions": str(self._partitions),
                "spark.databricks.delta.stats.collect": "false",
            }
        )
        self._inputs: list[Arrival] = []

    def load(self, state_keys: int) -> None:
        """Write the first links; the first run computes their values."""
        self.state_keys = state_keys
        path = self._place.scratch / "initial" / "links.parquet"
        self._inputs = [write_arrival(edge_table(self._workload.graph.first), path)]

    def run(self, arrival: Arrival) -> Figures:
        """Compute the values of all nodes from all links so far."""
        self._inputs.append(arrival)
        paths = [str(one.path) for one in self._inputs]
        links = self._session.read.schema("src BIGINT, dst BIGINT").parquet(*paths)
        if isinstance(self._workload, PageRank):
            iterations = self._rank(links, self._workload)
        else:
            self._save(coefficients(links))
            iterations = 1
        read = sum(one.bytes for one in self._inputs)
        return Figures(bytes_read=read, epochs=iterations)

    def emitted(self) -> None:
        """Return None: the values are compared instead."""

    def held(self) -> Values:
        """Read the table."""
        rows = self._session.read.format("delta").load(self._table).toArrow()
        nodes, values = (rows.column(name).to_pylist() for name in ("node", "value"))
        return Values(dict(zip(nodes, values, strict=True)))

    def close(self) -> None:
        """Do nothing: each run releases what it kept in memory."""

    def _save(self, values: Any) -> None:
        values.write.format("delta").mode("overwrite").save(self._table)

    def _rank(self, links: Any, workload: PageRank) -> int:
        """Iterate, and save the ranks; return the number of iterations."""
        given, pages = _prepared(links.distinct(), self._partitions)
        (count,) = pages.selectExpr("count(*)").first()
        (dangling,) = pages.selectExpr("cast(coalesce(sum(int(dangles)), 0) AS DOUBLE)").first()
        ranks, moved, iterations = pages.selectExpr("*", "1D AS rank"), float(count), 0
        while moved > workload.tolerance:
            after = _step(given, ranks, dangling / count).localCheckpoint(eager=False)
            sums = "sum(abs(change))", "coalesce(sum(if(dangles, rank, 0D)), 0D)"
            moved, dangling = after.selectExpr(*sums).first()
            ranks, iterations = after.drop("change"), iterations + 1
        self._save(ranks.selectExpr("node", "rank AS value"))
        for cached in (given, pages):
            cached.unpersist()
        return iterations


def _prepared(links: Any, partitions: int) -> tuple[Any, Any]:
    """Return what each page gives along its links `(src, dst, share)`, and all pages; cached."""
    links = links.repartition(partitions, "src")
    counts = links.groupBy("src").count()
    given = links.join(counts, "src").selectExpr("src", "dst", "1D / count AS share").persist()
    linking = counts.selectExpr("src AS node", "false AS dangles")
    ends = links.selectExpr("dst AS node", "true AS dangles")
    pages = linking.unionAll(ends).groupBy("node").agg({"dangles": "min"})
    pages = pages.toDF("node", "dangles").repartition(partitions, "node").persist()
    return given, pages


def _step(given: Any, ranks: Any, shared: float) -> Any:
    """Return the pages with their next ranks, and by how much each changed."""
    from pyspark.sql import functions as F

    sources = ranks.selectExpr("node AS src", "rank")
    inflow = given.join(sources.hint("shuffle_hash"), "src").selectExpr("dst", "rank * share AS r")
    inflow = inflow.groupBy("dst").agg(F.sum("r").alias("inflow"))
    rank = f"{1 - DAMPING}D + {DAMPING}D * (coalesce(inflow, 0D) + {shared!r}D)"
    joined = ranks.join(inflow.hint("shuffle_hash"), ranks.node == inflow.dst, "left")
    return joined.selectExpr("node", "dangles", f"{rank} AS rank", f"{rank} - rank AS change")


def coefficients(links: Any) -> Any:
    """Return the clustering coefficient of every node: `(node, value)`.

    Args:
        links: `(src, dst)`; direction, repetition and loops do not matter.
    """
    edges = links.where("src != dst").selectExpr("least(src, dst) AS a", "greatest(src, dst) AS b")
    edges = edges.distinct()
    ends = edges.selectExpr("a AS node").unionAll(edges.selectExpr("b AS node"))
    degrees = ends.groupBy("node").count().withColumnRenamed("count", "degree")
    low = degrees.selectExpr("node AS a", "degree AS da")
    high = degrees.selectExpr("node AS b", "degree AS db")
    ranked = edges.join(low, "a").join(high, "b")
    first = "struct(da, a) < struct(db, b)"
    led = ranked.selectExpr(f"if({first}, a, b) AS s", f"if({first}, b, a) AS t")
    pairs = led.selectExpr("s", "t AS t1").join(led.selectExpr("s", "t AS t2"), "s")
    pairs = pairs.where("t1 < t2").selectExpr("s", "t1 AS a", "t2 AS b")
    corners = pairs.join(edges, ["a", "b"]).selectExpr("explode(array(s, a, b)) AS node")
    triangles = corners.groupBy("node").count().withColumnRenamed("count", "t")
    value = "if(degree > 1, 2D * coalesce(t, 0) / (degree * (degree - 1)), 0D) AS value"
    return degrees.join(triangles, "node", "left").selectExpr("node", value)
