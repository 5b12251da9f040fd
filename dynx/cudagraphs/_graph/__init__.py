"""FX analysis: how a graph is captured (`plan`), and how it is split into pieces (`partition`, `split`)."""
