"""Functions that use private modules of torch; no other package of dynx imports these modules.

This package is called the seam. `hooks` replaces attributes of torch, `capabilities` lists every private name in use; the
folders follow torch's subsystems. After "Torch:", docstrings name the attributes of torch that a function uses. They are alike
in 2.11, 2.13 and 2.15, unless the docstring names a difference.
"""
