"""The commands that read saved runs; they do not need torch."""

UNREADABLE = 3  # the exit code of commands that check files, for a file of which not everything was read
