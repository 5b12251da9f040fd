"""Findings: the records of a run, grouped by what causes them, with the texts of the rules that apply."""
