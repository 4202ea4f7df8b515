"""What compactions did last, from the records of runs, compared with the files on disk."""

from __future__ import annotations

from pathlib import Path

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.files import LocalFiles
from cbp.model.run.compactions import last_compactions
from tests.controller.world import ONE, World


def test_the_newest_compaction_of_each_table_is_told(tmp_path: Path) -> None:
    """Files and bytes before and after are those that lie there; tables without one are left out.

    A replaced file whose record is not looked at has no size.
    """
    world = World(tmp_path, engine=LocalEngine)
    world.controller.register(ONE)
    assert world.controller.compactions("one") == []
    for number in range(24):
        world.clock.advance(1)
        world.arrive("one", "a", *((f"w{number}-{n}", 1) for n in range(20)))
        world.ticks()
    told = world.controller.compactions("one")
    assert {one.table for one in told} == {"state/sum.sums", "flows/sum.totals"}
    folder = Path(world.store.dataflow("one").folder)
    log = IntentionLog(str(folder), LocalFiles())
    for one in told:
        later = [log.read("sum", epoch) for epoch in range(one.epoch, 24)]
        (change, *newer) = [
            change
            for record in later
            if record is not None
            for change in record.changes
            if change.table == one.table and not change.data_change
        ]
        assert newer == [], "it is the newest"
        before = [(folder / one.table / path).stat().st_size for path in change.drops]
        after = [(folder / one.table / add["path"]).stat().st_size for add in change.adds]
        assert (one.files_before, one.bytes_before) == (len(before), sum(before))
        assert (one.files_after, one.bytes_after) == (len(after), sum(after))
        assert one.files_before > one.files_after
        record = log.read("sum", one.epoch)
        assert record is not None
        assert one.at_ms == record.prepared_ms
        (alone,) = [c for c in last_compactions([record]) if c.table == one.table]
        assert (alone.bytes_before, alone.bytes_after) == (None, one.bytes_after)
    world.close()
