"""The public test kit: run a translator or a dataflow in memory, without Spark or disk.

    >>> from cbp import Input, Translate, View
    >>> class UrlCount(Translate):
    ...     urls = Input("url STRING", route_by="url")
    ...     counts = View("url STRING, n BIGINT", key="url")
    ...
    ...     def translate(self, key, group, out):
    ...         n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
    ...         out.counts(url=key.url, n=n)
    >>> result = run_epochs(UrlCount, [["a", "b", "a"], ["b"]])
    >>> result.view("counts")
    [counts(url='a', n=2), counts(url='b', n=2)]
    >>> [(row.change_type, row.url, row.n) for row in result.outputs["counts"][1]]
    [('update_before', 'b', 1), ('update_after', 'b', 2)]

`result.state` has the records of each state, `result.outputs` those of each output by epoch, and
`result.last` the last record per key of an output.

One property finds most mistakes: any split of the input into epochs gives the same result as one
batch. `check_split` checks it. Draw the epochs with hypothesis (`st.lists(st.lists(...))`), and
also compare the view, `last` or the state with a plain Python computation over all records.

    >>> batch = check_split(UrlCount, [["a", "b"], [], ["a"]])
    >>> batch.view("counts")
    [counts(url='a', n=2), counts(url='b', n=1)]

`check_split` takes a whole dataflow too, with the increments of each source, as `run_dataflow`.

    >>> from cbp import DataflowBuilder
    >>> flow = DataflowBuilder("clicks")
    >>> _ = flow.stage("count", UrlCount(), urls=flow.source("urls", "url STRING"))
    >>> batch = check_split(flow.build(), {"urls": [["a", "b"], ["a"]]})
    >>> batch.view("count.counts")
    [counts(url='a', n=2), counts(url='b', n=1)]

A stage with `any_order: true`, which allows files of its sources to be replaced, promises more: its
result depends only on the records. `check_any_order` gives them in other orders, too.

    >>> _ = check_any_order(UrlCount, [["a", "b"], [], ["a"]])

In an output with a key, a record whose other columns are all null is a tombstone: its key is
removed, as if it had never been emitted. A view has the change `delete` instead.

The table of a look-up is given before the first epoch, with `lookups`, or within an epoch, like an
input: the whole table from this epoch on.

    >>> from cbp import Lookup, Output
    >>> class Named(Translate):
    ...     orders = Input("customer STRING, n BIGINT", route_by="customer")
    ...     customers = Lookup("customer STRING, name STRING", by="customer")
    ...     named = Output("name STRING, n BIGINT")
    ...
    ...     def translate(self, key, group, out):
    ...         customer = group.customers.one()
    ...         for order in group.orders:
    ...             out.named(customer and customer.name, order.n)
    >>> orders = [{"orders": [("a", 1)]}, {"orders": [("a", 2)], "customers": [("a", "Bo")]}]
    >>> result = run_epochs(Named, orders, lookups={"customers": [("a", "Al")]})
    >>> [list(map(tuple, epoch)) for epoch in result.outputs["named"]]
    [[('Al', 1)], [('Bo', 2)]]
    >>> _ = check_split(Named, [[("a", 1)], [("a", 2)]], lookups={"customers": [("a", "Al")]})

What a group finds depends on when it is called. So `check_split` accepts a table that changes only
if the changes call groups (`wake=True`). Then the result must not depend on when the changes came.

Guaranteed: the semantics of the reference engine (`cbp.engine.reference.engine`). The production
engine is tested against it. Nothing here reads a clock or starts a process.
"""

from cbp.testing.dataflow_runs import run_dataflow
from cbp.testing.result import Result
from cbp.testing.split_check import check_any_order, check_split
from cbp.testing.translator_runs import run_epochs

__all__ = ["Result", "check_any_order", "check_split", "run_dataflow", "run_epochs"]
