"""Helpers of the advice rules: predicates on guards and graph breaks, and advice and fixes that several rules share."""
