"""One compilation from outside: the frame and how it ended, its events and metrics, configuration, limits, and backends."""
