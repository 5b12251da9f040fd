"""FX analysis: what a graph reads and writes (`effects`), how it is captured (`plan`), where it is split (`partition`)."""
