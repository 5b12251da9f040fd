"""Rules DX1xx about everything else that torch guards: Python values, objects, modes, global state, backends."""
