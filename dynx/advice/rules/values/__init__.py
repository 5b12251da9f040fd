"""Rules DX1xx about Python values: recompiles because of a value, an object, a mode, global state or a backend."""
