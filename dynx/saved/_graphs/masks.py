"""Recognize saved tensors that are masks: backward reads only their signs or zeros, or one bit per element is enough."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf, isinf
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from dynx._fx.effects import Memory
from dynx._fx.nodes import value_of
from dynx._torch.autograd.partition import only_element

_ATEN = torch.ops.aten
_COMPARISONS = (_ATEN.le, _ATEN.lt, _ATEN.ge, _ATEN.gt, _ATEN.eq, _ATEN.ne)
# operators of backward, and the index of the argument of which they read only the sign or zeros
_MASK_ARGUMENT: dict[Any, int] = {
    **dict.fromkeys((_ATEN.threshold_backward.default, _ATEN.leaky_relu_backward.default), 1),
    **dict.fromkeys((_ATEN.sign.default, _ATEN.sgn.default, _ATEN.logical_not.default), 0),
    **dict.fromkeys((overload for packet in _COMPARISONS for overload in (packet.Scalar, packet.Tensor)), 0),
}
# operators that compare with a threshold, the index of that argument, and whether NaN counts as greater
_THRESHOLD: dict[Any, tuple[int, bool]] = {
    _ATEN.threshold_backward.default: (2, True),
    _ATEN.le.Scalar: (1, True),
    _ATEN.gt.Scalar: (1, False),
}
# operators that fill a tensor with one number, and the index of that argument
_FILLED = {_ATEN.scalar_tensor.default: 0, _ATEN.full.default: 1, _ATEN.full_like.default: 1}
_ZEROS = (_ATEN.zeros.default, _ATEN.zeros_like.default, _ATEN.new_zeros.default)
_ONES = (_ATEN.ones.default, _ATEN.ones_like.default, _ATEN.new_ones.default)
_SAME_ELEMENTS = (  # the result has the elements of the argument, in another shape or order
    *(_ATEN.expand.default, _ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default),
    *(_ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.permute.default, _ATEN.transpose.int),
    *(_ATEN.alias.default, _ATEN.detach.default, _ATEN.clone.default, _ATEN.lift_fresh_copy.default),
    *(_ATEN.slice.Tensor, _ATEN.select.int),
)
_UNITS = (0.0, 1.0, -1.0, inf, -inf)  # a product with one of these numbers is exact


def _times(a: float, b: float) -> float | None:
    return a * b if a in _UNITS or b in _UNITS else None


def _minus(a: float, b: float) -> float | None:
    return a - b if a in _UNITS and b in _UNITS else None


# elementwise operators as functions of numbers, which return None if the tensor may be rounded
_ELEMENTWISE: dict[Any, Callable[..., float | None]] = {
    _ATEN.where.self: lambda mask, yes, no: yes if mask else no,
    _ATEN.masked_fill.Scalar: lambda tensor, mask, value: value if mask else tensor,
    _ATEN.masked_fill.Tensor: lambda tensor, mask, value: value if mask else tensor,
    _ATEN._to_copy.default: lambda tensor: tensor,
    torch.ops.prims.convert_element_type.default: lambda tensor, dtype: tensor,
    _ATEN.logical_not.default: operator.not_,
    _ATEN.neg.default: operator.neg,
    _ATEN.mul.Tensor: _times,
    _ATEN.mul.Scalar: _times,
    _ATEN.sub.Tensor: _minus,
    _ATEN.rsub.Scalar: lambda tensor, number: _minus(number, tensor),
    _ATEN.eq.Scalar: operator.eq,
    _ATEN.ne.Scalar: operator.ne,
    _ATEN.gt.Scalar: operator.gt,
    _ATEN.lt.Scalar: operator.lt,
}
_DEEPEST = 24  # operators between a mask and a tensor computed from it


class OneBit(NamedTuple):
    """How one bit per element replaces a floating-point tensor: set bits are unpacked as `yes`, the other bits as `no`."""

    yes: float
    no: float
    greater_than_zero: bool = False  # the bit is set for elements greater than 0, else for those equal to `yes`
    nan: bool = False  # the bit of NaN

    def bits(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a bool tensor with the one bit that represents each element of a floating-point tensor."""
        if self.greater_than_zero:
            return ~(tensor <= 0) if self.nan else tensor > 0
        low, high = sorted((self.yes, self.no))
        between = high if isinf(low) else low if isinf(high) else low / 2 + high / 2  # if a backend rounds otherwise
        is_high = tensor > between if between == low else tensor >= between
        return is_high if self.yes == high else ~is_high

    def tensor(self, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of this dtype with the value `yes` where `mask` is True, and `no` elsewhere."""
        yes, no = (torch.scalar_tensor(value, dtype=dtype, device=mask.device) for value in (self.yes, self.no))
        return torch.where(mask, yes, no)


def reads_as_mask(reader: Node, source: Node, memory: dict[Node, Memory]) -> bool:
    """Return whether a node reads only the signs of a tensor, or which of its elements are zero."""
    position = _MASK_ARGUMENT.get(reader.target)
    if position is None:
        return False
    reading = [index for index, arg in enumerate(reader.args) if isinstance(arg, Node) and memory[arg] & memory[source]]
    return reading == [position]


def one_bit(node: Node, readers: Sequence[Node], *, only_as_mask: bool) -> OneBit | None:
    """Return how to represent a floating-point tensor of forward by one bit per element; None if one bit is not enough.

    `only_as_mask` is whether the `readers` in backward use only the signs of the elements, or which elements are zero.
    """
    if not value_of(node).dtype.is_floating_point:
        return None
    compares = [_THRESHOLD.get(reader.target) for reader in readers] if only_as_mask else []
    if compares and all(
        compare is not None and reader.args[compare[0]] == 0 for reader, compare in zip(readers, compares, strict=True)
    ):
        nan = {compare[1] for compare in compares if compare is not None}
        if len(nan) == 1:
            return OneBit(1.0, 0.0, greater_than_zero=True, nan=nan.pop())
    return _two_constants(node)


def _two_constants(node: Node) -> OneBit | None:
    """Return the `OneBit` for a tensor whose elements have only two values, as in `where(mask, 0, -inf)`; else None."""
    found = _values(node, 0)
    if found is None or found.mask is None:
        return None
    yes, no = float(found.yes), float(found.no)
    return OneBit(yes, no) if yes < no or no < yes else None  # not equal, and no NaN


class _Values(NamedTuple):
    """The values of a tensor where a mask is True (`yes`), and where it is False (`no`)."""

    mask: Node | None  # None for a constant
    yes: float
    no: float


def _values(node: Node, depth: int) -> _Values | None:
    """Return the two values that a node's elements can have, and the mask that selects one; None if there may be more."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or depth > _DEEPEST:
        return None
    if (number := _filled(node)) is not None:
        return _Values(None, number, number)
    found = _computed(node, depth)
    return found if found is not None or value.dtype is not torch.bool else _Values(node, yes=True, no=False)


def _computed(node: Node, depth: int) -> _Values | None:
    """Return the `_values` of an operator's result, derived from the `_values` of its arguments; None if that is impossible."""
    if node.op != "call_function":
        return None
    if node.target in _SAME_ELEMENTS:
        return _values(node.all_input_nodes[0], depth + 1)
    if (function := _ELEMENTWISE.get(node.target)) is None:
        return None
    sources = {source: _values(source, depth + 1) for source in node.all_input_nodes}
    masks = [found.mask for found in sources.values() if found is not None and found.mask is not None]
    if None in sources.values() or len(masks) > 1:  # also two views of one mask: their elements differ
        return None
    yes, no = (function(*(_number(arg, sources, side) for arg in node.args)) for side in (1, 2))
    return _Values(masks[0] if masks else None, yes, no) if yes is not None and no is not None else None


def _number(arg: Any, sources: dict[Node, _Values | None], side: int) -> Any:
    found = sources.get(arg) if isinstance(arg, Node) else None
    return found[side] if found is not None else arg


def _filled(node: Node) -> float | None:
    """Return the number that all elements of a node have, as for `full` or a constant with one element; else None."""
    if node.op == "get_attr":
        constant = getattr(node.graph.owning_module, str(node.target), None)
        return only_element(constant) if isinstance(constant, torch.Tensor) else None
    if node.target in _ZEROS or node.target in _ONES:
        return float(node.target in _ONES)
    position = _FILLED.get(node.target)
    number = node.args[position] if position is not None else None
    return number if isinstance(number, (bool, int, float)) else None
