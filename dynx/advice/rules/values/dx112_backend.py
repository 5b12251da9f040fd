"""DX112: a new backend object on every compile."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, RecompileRule
from dynx.records.fix import Fix

RULE = RecompileRule(
    id="DX112",
    title="a new backend object on every compile",
    applies=has_kind("backend"),
    advice=lambda cause: Advice("create the backend once and pass the same object"),
    fixes=lambda cause: [Fix("option", "dynx.compile")],
)
