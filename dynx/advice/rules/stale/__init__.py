"""Rules DX91x: values that changed while compiled code kept the old ones, because no guard watches them."""
