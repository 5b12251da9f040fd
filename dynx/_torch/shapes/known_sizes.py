"""Find sizes and numbers that are dynamic from the first compilation on, because of a PGO profile of an earlier process.

Torch: `pgo.update_automatic_dynamic(tx, name, entry)` and `pgo._INIT_CODE_STATE`, the profile that torch loaded itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dynx._torch.shapes.closure_hash import hashes_closures
from dynx._torch.shapes.code_state import RawCodeId, plain, plain_sizes
from dynx.records.observed import TORCHS_PROFILE
from dynx.records.profile import DYNAMIC, Seen, SourceProfile


class CodeKey(NamedTuple):
    """The identity of a function in torch's profile: its file hash, line and name, and the hash of its closure."""

    function: tuple[str, int, str]
    closure: int | None


Sizes = Mapping[CodeKey, Mapping[str, SourceProfile]]


class Begun(NamedTuple):
    """A PGO profile that this process started with: its name, and the sizes of each function, by `CodeKey` and source."""

    name: str
    sizes: Sizes
    unused: Sizes  # functions whose closure hash is valid only in the process that saved it; of torch's own profile, all


class RawKnown(NamedTuple):
    """A size or number that is dynamic in a PGO profile, and why: two values that it had in one or two earlier runs (`run`)."""

    source: str
    dim: int | None
    profile: str
    values: tuple[str, str] | None
    run: str | None


begun: list[Begun] = []  # the profiles that dynx applied


def known_sizes(tx: Any, source: str, result: Any) -> list[RawKnown]:
    """Return the dimensions of a source that are dynamic because of a PGO profile.

    `result` is what torch's `update_automatic_dynamic` returned for the source.
    """
    profiles = _profiles()
    if not profiles:
        return []
    key, now = key_of(tx), plain_sizes(result)
    found = []
    for dim, value in now.dims():
        if value == DYNAMIC:
            known = next((one for one in profiles if _has(one.sizes.get(key, {}).get(source), dim)), None)
            if known is not None:
                found.append(_known(known, known.sizes[key][source], source, dim))
    return found


def other_closure(tx: Any) -> str | None:
    """Return the name of a PGO profile that is not used for the traced function because the hash of its closure differs.

    Return None if no profile has dynamic sizes for this function, or if a profile has the function with its present closure.
    """
    key = key_of(tx) if (profiles := _profiles()) and hashes_closures() else None
    if key is None or key.closure is None or any(key in one.sizes for one in profiles):
        return None
    for one in profiles:
        for other, sources in one.unused.items():
            if other.function == key.function and any(_has_dynamic(sizes) for sizes in sources.values()):
                return one.name
    return None


def code_key(code: RawCodeId) -> CodeKey:
    """Return the `CodeKey` of a `RawCodeId`; the file's path is left out, as in torch's comparison."""
    return CodeKey((code.file_hash, code.line, code.name), code.closure)


def profile_names() -> tuple[str, ...]:
    """Return the names of the PGO profiles that this process started with, including empty profiles."""
    import torch

    of_torch = () if torch.compiler.config.job_id is None else (TORCHS_PROFILE,)
    return (*(one.name for one in begun), *of_torch)


def _profiles() -> list[Begun]:
    """Return the PGO profiles that this process started with: first those that dynx applied, then torch's own."""
    from torch._dynamo import pgo

    if not pgo._INIT_CODE_STATE:
        return begun
    sizes = {code_key(code): sizes for code, sizes in plain(pgo._INIT_CODE_STATE).items()}
    return [*begun, Begun(TORCHS_PROFILE, sizes, sizes)]


def key_of(tx: Any) -> CodeKey:
    """Return the identity of the function that an InstructionTranslator traces."""
    from torch._dynamo import pgo

    code = pgo.CodeId.make(tx.f_code, tx.closure) if hashes_closures() else pgo.CodeId.make(tx.f_code)
    return CodeKey((code.file_hash, code.firstlineno, code.name), getattr(code, "closure_hash", None))


def _has(sizes: SourceProfile | None, dim: int | None) -> bool:
    return sizes is not None and dict(sizes.dims()).get(dim) == DYNAMIC


def _has_dynamic(sizes: SourceProfile) -> bool:
    return any(value == DYNAMIC for _, value in sizes.dims())


def _known(profile: Begun, sizes: SourceProfile, source: str, dim: int | None) -> RawKnown:
    pair = next(_pairs(sizes.values(dim)), None)
    values = None if pair is None else (str(pair[0].value), str(pair[1].value))
    runs = () if pair is None else dict.fromkeys(seen.run for seen in pair)
    return RawKnown(source, dim, profile.name, values, " and ".join(runs) or None)


def _pairs(values: tuple[Seen, ...]) -> Iterator[tuple[Seen, Seen]]:
    """Yield all pairs of different values of a size or number; pairs whose values were seen in the same run come first."""
    different = [(one, other) for one in values for other in values if one.value != other.value]
    yield from sorted(different, key=lambda pair: (pair[0].run != pair[1].run, pair[0].run, pair[0].compile_id))
