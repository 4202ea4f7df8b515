"""Delta tables as this engine writes them: log entries, checkpoints, the fence.

    actions                what a log entry consists of, as values; pure
    change_feed_settings   which table has a change data feed, and of which flow; pure
    columns                the schema of a table as Delta's JSON; pure
    log                    reads entries and checkpoints into a snapshot, without a JVM
    checkpoint             one snapshot as a Parquet file
    deletion_vectors       the dead rows of a data file, their file format, and a cache of them
    live_records           reads the records of a data file that are not dead
    foreign_writer_fence   marks a table as ours, and detects foreign writers
    repair                 takes a table back to our last version after a foreign writer
    tables                 creates, opens, publishes to and releases managed tables

Nothing here starts a JVM. The files of a change data feed are written by
`cbp.engine.commit.change_feed`.
"""
