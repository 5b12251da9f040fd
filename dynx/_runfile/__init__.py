"""Run files: the records of a watch as JSON lines that survive a killed process, one file for each process and rank."""
