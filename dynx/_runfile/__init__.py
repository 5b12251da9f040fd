"""Run files: what `dynx.watch()` recorded, as JSON lines that survive a killed process; one file for each process and rank."""
