"""Trace the functions of a codec for one tensor, and check what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynx._fx.nodes import value_of
from dynx._torch.autograd.partition import Partition
from dynx.errors import BadCodec, DynxError
from dynx.records.location import Location

_SCALARS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class TracedCodec(NamedTuple):
    """The graphs of `pack` and `unpack` for one tensor, and the flattened results of `pack`: nodes and constants."""

    pack: GraphModule
    unpack: GraphModule
    outputs: tuple[Any, ...]


class Subject(NamedTuple):
    """A packed tensor, its codec, and the line that computed the tensor, for error messages."""

    name: str
    codec: str
    location: Location | None

    def error(self, what: str, advice: str) -> BadCodec:
        where = f" at {self.location}" if self.location is not None else ""
        return BadCodec(f"{self.codec} cannot store {self.name}{where}: {what}\n  {advice}")


def trace_codec(
    partition: Partition, value: torch.Tensor, pack: Callable[..., Any], unpack: Callable[..., Any], subject: Subject
) -> TracedCodec:
    """Trace `pack` on the saved tensor `value`, and `unpack` on the result of `pack`; errors name the `subject`.

    Raises:
        BadCodec: A function cannot be traced, or `pack` returns values that cannot be stored.
    """

    def pack_one(tensor: torch.Tensor) -> Any:  # torch's tracer accepts no further parameters, even with a default
        return pack(tensor)

    packing = _traced(partition, pack_one, (value,), "pack", subject)
    outputs, spec = pytree.tree_flatten(packing.graph.output_node().args[0])
    leaves = tuple(value_of(output) if isinstance(output, Node) else output for output in outputs)
    if any(is_traceable_wrapper_subclass(leaf) for leaf in leaves):
        raise subject.error(
            "pack returns a tensor subclass, which a compiled graph cannot save",
            "let pack return its inner tensors, and unpack rebuild it",
        )
    varying = [index for index, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, *_SCALARS))]
    if not leaves:
        raise subject.error("pack returns nothing to store, such as an empty tuple", "let pack return at least one tensor")

    def unpack_stored(*stored: Any) -> Any:
        values = list(leaves)
        for index, item in zip(varying, stored, strict=True):
            values[index] = item
        return unpack(pytree.tree_unflatten(values, spec))

    unpacking = _traced(partition, unpack_stored, tuple(leaves[index] for index in varying), "unpack", subject)
    return TracedCodec(packing, unpacking, tuple(outputs))


def check_unpacked(unpacked: Any, value: torch.Tensor, subject: Subject) -> None:
    """Raise BadCodec unless `unpacked` is a tensor with the shape, dtype and device of `value`."""
    advice = "let pack store what unpack needs, such as (tensor.dtype, tensor.shape, ...)"
    if not isinstance(unpacked, torch.Tensor):
        raise subject.error(f"unpack returns {type(unpacked).__name__}, not a tensor", advice)
    for what in ("shape", "dtype", "device"):
        expected, actual = getattr(value, what), getattr(unpacked, what)
        if expected != actual:
            raise subject.error(f"unpack returns {what} {_text(actual)}, but pack got {what} {_text(expected)}", advice)


def check_deterministic(traced: TracedCodec, subject: Subject) -> None:
    """Raise BadCodec if `pack` or `unpack` draws random numbers."""
    for which, gm in (("pack", traced.pack), ("unpack", traced.unpack)):
        for node in gm.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise subject.error(
                    f"{which} draws random numbers ({node.target}), so the model draws other numbers than without the codec",
                    f"let {which} draw no random numbers, or create the hooks with validate=False to allow them",
                )


def _traced(partition: Partition, fn: Callable[..., Any], args: tuple[Any, ...], which: str, subject: Subject) -> GraphModule:
    try:
        return partition.trace(fn, args)
    except DynxError:
        raise
    except Exception as error:
        raise _explained(error, which, subject) from error


def _explained(error: Exception, which: str, subject: Subject) -> BadCodec:
    text, kind = str(error).partition("\n")[0], type(error).__name__
    if kind in ("DataDependentOutputException", "GuardOnDataDependentSymNode", "DynamicOutputShapeException"):
        return subject.error(
            f"{which} depends on values of the tensor ({text})",
            "use torch.where instead of a branch, and outputs of fixed sizes",
        )
    if "FakeTensor" in text or "Fake" in kind:
        return subject.error(
            f"{which} uses a tensor from outside ({text[:120]})", f"create it in {which}, with torch.arange or full"
        )
    if "mutation" in text.lower():
        return subject.error(f"{which} changes the tensor in place", "return new tensors")
    return subject.error(f"{which} raised {kind}: {text[:200]}", f"call {which} with such a tensor in eager code to see it")


def _text(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)
