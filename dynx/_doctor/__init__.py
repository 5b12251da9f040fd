"""Checks of the installed torch: `doctor` checks that private names exist, `canaries` check that they behave as expected."""
