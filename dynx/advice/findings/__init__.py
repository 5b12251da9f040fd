"""Group the records of a run by their cause, and describe each group as a finding with the texts of its rule."""
