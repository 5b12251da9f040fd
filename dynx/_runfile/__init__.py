"""Run files: what a watch has recorded, as JSON lines that survive a killed process, one file for each process and rank."""
