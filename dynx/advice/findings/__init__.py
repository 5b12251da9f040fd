"""Group the records of a run by their cause, and turn each group into a finding, with the title and advice of its rule."""
