"""Functions that use private modules of torch; no other package of dynx imports these modules.

This package is called the seam. `hooks` replaces attributes of torch, `capabilities` lists every private name in use; the
folders follow torch's subsystems. After "Torch:", docstrings name the attributes of torch that a function uses; "alike in 2.11"
means that torch 2.11 has them in the same form.
"""
