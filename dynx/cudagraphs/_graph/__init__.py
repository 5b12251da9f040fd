"""FX analysis: how a graph is captured (`plan`, `plan_cache`), and how it is split into pieces (`partition`, `split`)."""
