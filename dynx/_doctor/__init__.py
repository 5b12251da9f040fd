"""Checks of the installed torch: `doctor` checks that private names of torch exist, `canaries` how they behave."""
