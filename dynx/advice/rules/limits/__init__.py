"""Rules DX3xx: functions that reached a recompile limit, and compilations that failed."""
