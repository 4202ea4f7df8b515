"""Delta tables as this engine writes them: log entries, checkpoints, the fence.

    actions     what stands in a log entry, as values; pure
    columns     the schema of a table, in Delta's spelling; pure
    log         reads entries and checkpoints into a snapshot, without a JVM
    checkpoint  one snapshot as a Parquet file
    fence       what makes a table ours, and what is noticed when it is not
    tables      creates, opens, publishes to and releases managed tables

Nothing here starts a JVM.
"""
