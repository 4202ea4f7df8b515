"""Delta tables as this engine writes them: log entries, checkpoints, the fence; without a JVM."""
