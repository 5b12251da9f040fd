"""A module that holds state, and a function that changes it."""

held = None
mutate = None


def change():
    mutate(held)
