"""A compilation seen from outside: its frame and outcome, events, metrics, configuration, limits and backends."""
