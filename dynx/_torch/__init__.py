"""Functions that use private modules of torch; no other package of dynx imports these modules.

This package is called the seam. `hooks` replaces attributes of torch, `capabilities` lists every private name in use; the
folders follow torch's subsystems. Docstrings name the attributes of torch that a function uses, and the versions in which they
are alike.
"""
