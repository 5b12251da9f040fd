"""Rules DX7xx: codecs of `dynx.saved` that change gradients more than their precision suggests, and unused rules."""
