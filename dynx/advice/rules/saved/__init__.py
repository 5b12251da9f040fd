"""Rules DX7xx: saved tensors that are stored with too little precision for backward, and user rules that have no effect.

A codec of `dynx.saved` packs a saved tensor, such as to fp8; a `saved.rule` of the user says which tensors a codec packs.
"""
