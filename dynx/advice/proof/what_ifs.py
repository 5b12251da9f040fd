"""Update the advice of findings by what-ifs: fixes that were tried on the calls of a function while the program ran."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dynx.advice.facts.names import spoken
from dynx.advice.proof.alternatives import naming, without
from dynx.records.finding import Alternative
from dynx.records.fix import Fix
from dynx.records.what_if import WhatIf

_UNPROVEN = "not proven"
_FEW = 2  # compilations of a function: one with the first size, one with any size


def of_parts(parts: Sequence[Sequence[WhatIf]], fixes: Sequence[Fix], elsewhere: Sequence[WhatIf] = ()) -> tuple[WhatIf, ...]:
    """Return a what-if for each fix that was tried on every part of a function, with the sums of its parts, the best first.

    A function has several parts if graph breaks split it. `elsewhere` has what-ifs of parts that recompile for another cause;
    a fix that does not help there is not proven to help.
    """
    tried: dict[tuple[Fix, tuple[Fix, ...]], list[WhatIf]] = {(fix, ()): [] for fix in fixes}
    for what_if in (what_if for what_ifs in parts for what_if in what_ifs if what_if.fix in fixes):
        tried.setdefault((what_if.fix, what_if.together), []).append(what_if)
    joined = [_sum(own) for own in tried.values() if len(own) == len(parts)]
    in_vain = {each.fix for each in elsewhere if not each.helps and not each.together}
    joined = [_not_proven(each) if each.helps and each.fix in in_vain else each for each in joined]
    return tuple(sorted(joined, key=lambda what_if: (not what_if.helps, what_if.compiles)))  # stable: the smallest change first


def _not_proven(what_if: WhatIf) -> WhatIf:
    return replace(what_if, outcome="not proven", reason="it is not proven to help another part of the function")


def of_breaks(tried: Sequence[WhatIf], fixes: Sequence[Fix], known: Collection[tuple[str, int, str]]) -> tuple[WhatIf, ...]:
    """Return the worst what-if of each fix for a graph break, the best fix first.

    A trace that goes on to a graph break in `known`, which the program has anyway, has removed the one that the fix is for.
    """
    judged = [_judged(what_if, known) for what_if in tried]
    own = [[what_if for what_if in judged if what_if.fix == fix] for fix in fixes]
    joined = [_sum(what_ifs) for what_ifs in own if what_ifs]
    return tuple(sorted(joined, key=lambda what_if: not what_if.helps))


def _judged(what_if: WhatIf, known: Collection[tuple[str, int, str]]) -> WhatIf:
    if what_if.outcome == "leads to another" and what_if.then is not None and what_if.then.cause in known:
        return replace(what_if, outcome="removes")
    return what_if


def _sum(what_ifs: Sequence[WhatIf]) -> WhatIf:
    worst = next((each for each in what_ifs if not each.helps), None)
    return replace(
        worst or max(what_ifs, key=lambda each: each.outcome == "fewer"),
        calls=sum(each.calls for each in what_ifs),
        compiles=sum(each.compiles for each in what_ifs),
        seconds=sum(each.seconds for each in what_ifs),
    )


def with_what_ifs(advice: Sequence[Alternative], what_ifs: Sequence[WhatIf]) -> Sequence[Alternative]:
    """Return advice in which fixes that are proven to help come first, without those that are proven not to help.

    A fix that is proven to help less than other advice may is added at the end. If none is proven to help, one that helps
    together with fixes of other causes comes first, and fixes that were not tried stay in the advice, as "not proven".
    """
    together = next((each for each in what_ifs if each.helps and each.together), None)
    what_ifs = [each for each in what_ifs if not each.together]
    advice = [_with_proof(each, what_ifs) for each in advice]
    refuted = [each.fix for each in what_ifs if each.outcome in ("raises", "no effect", "leads to another")]
    best = next((each for each in what_ifs if each.helps), None)
    if best is None and together is not None:
        others = " and ".join(fix.code for fix in together.together)
        text = f"{_said(together, advice)}, together with {others}"
        proven = Alternative(text, together.fix.name, f"proven together: {together.result}")
        return [proven, *without(advice, [*refuted, together.fix])]
    if best is None:
        return without(advice, refuted) or [Alternative(f"nothing that is known helps; tried in vain: {_in_vain(what_ifs)}")]
    rest = without(advice, [*refuted, best.fix])
    proven = Alternative(_said(best, advice), best.fix.name, f"proven: {best.result}")
    if best.outcome == "removes" or best.compiles <= max(_FEW, best.calls // 2):
        cut = {each.fix.name for each in what_ifs}
        return [proven, *(each for each in rest if each.proof != _UNPROVEN or each.does not in cut)]  # it may do harm
    return [*rest, proven]


def _said(what_if: WhatIf, advice: Sequence[Alternative]) -> str:
    """Return the text for a fix, which is that of the rule for a mark or an option."""
    said = naming(advice, what_if.fix) if what_if.fix.kind in ("mark", "option") else None
    return said.text if said is not None else _written(what_if)


def _in_vain(what_ifs: Sequence[WhatIf]) -> str:
    return ", ".join(f"{_written(each)} ({each.result})" for each in what_ifs if each.is_proven)


def _with_proof(alternative: Alternative, what_ifs: Sequence[WhatIf]) -> Alternative:
    """Return an alternative with what was proven about it; it says so if others were tried, but not it."""
    if not alternative.does or not what_ifs:
        return alternative
    proven = [each for each in what_ifs if each.is_proven and each.fix.name == alternative.does]
    helps = next((each for each in proven if each.helps), None)
    if helps is not None:
        return replace(alternative, proof=f"proven: {helps.result}")
    return alternative if proven else replace(alternative, proof=_UNPROVEN)


def _written(what_if: WhatIf) -> str:
    fix = what_if.fix
    match fix.kind:
        case "option":
            return f"compile with {fix.code}"
        case "mark":
            return f"{fix.code} before the call"
        case "rewrite" if fix.marks:
            return f"pass {spoken(fix.marks[0].source)} as a tensor"
    return fix.written_as(what_if.written)
