"""Which saved tensors a rule packs."""

import pytest
import torch
import torch.nn.functional as F
from support.saved_training import EXACT, graphs_saved
from torch import nn

from dynx import saved
from dynx.errors import UsageError


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        return self.down(hidden)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Mlp(), Mlp()
        self.register_buffer("scale", torch.randn(16))

    def forward(self, x):
        return self.second(F.relu(self.first(x) * self.scale)).exp()


def packed_with(*rules, model=None, x=None):
    """Return the saved tensors of a compiled model by name."""
    model, x = model or Model(), torch.randn(8, 16) if x is None else x
    with graphs_saved() as graphs, saved.hooks(*rules, validate=False):
        torch.compile(model, backend="aot_eager")(x)
    return {tensor.name: tensor for tensor in graphs[0].tensors}


def names_packed(tensors):
    return {name for name, tensor in tensors.items() if tensor.codec is not None}


def test_parameters_buffers_and_inputs_are_skipped():
    tensors = packed_with(saved.rule(EXACT))
    kinds = {tensor.kind for tensor in tensors.values() if tensor.codec is None}
    assert kinds == {"param", "buffer", "input", "output"}
    assert {tensor.kind for tensor in tensors.values() if tensor.codec is not None} == {"activation"}


def test_skip_nothing():
    tensors = packed_with(saved.rule(EXACT, skip=()))
    assert names_packed(tensors) == set(tensors)


@pytest.mark.slow
def test_a_view_of_a_parameter_is_a_parameter():
    weight = nn.Parameter(torch.randn(16, 16))
    with graphs_saved() as graphs, saved.hooks(saved.rule(EXACT)):
        torch.compile(lambda x: (x @ weight.T).exp() @ weight.T.reshape(16, 16), backend="aot_eager")(torch.randn(4, 16))
    assert all(tensor.kind in ("activation", "param", "input") for tensor in graphs[0].tensors)
    assert all(tensor.codec is None for tensor in graphs[0].tensors if tensor.kind == "param")


def test_min_numel():
    tensors = packed_with(saved.rule(EXACT, min_numel=8 * 64))
    assert {tensor.shape for tensor in tensors.values() if tensor.codec is not None} == {(8, 64)}
    small = next(tensor for tensor in tensors.values() if tensor.is_activation and tensor.codec is None)
    assert "min_numel is 512" in small.why


def test_dtype():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    tensors = packed_with(saved.rule(saved.codecs.bits(), dtype=torch.bool), model=model)
    assert {tensor.dtype for tensor in tensors.values() if tensor.codec is not None} == {"bool"}


def test_module():
    tensors = packed_with(saved.rule(EXACT, module=r"^first\.up"))
    packed = [tensor for tensor in tensors.values() if tensor.codec is not None]
    assert {tensor.module for tensor in packed} == {"first.up: Linear"}


def test_module_by_class():
    tensors = packed_with(saved.rule(EXACT, module=": Linear$"))
    assert {tensor.module.partition(": ")[2] for tensor in tensors.values() if tensor.codec is not None} == {"Linear"}


def test_name():
    tensors = packed_with(saved.rule(EXACT, name="^gelu"))
    assert names_packed(tensors) == {name for name in tensors if name.startswith("gelu")} != set()


def test_line():
    line = Mlp.forward.__code__.co_firstlineno + 1
    tensors = packed_with(saved.rule(EXACT, line=f"test_rules.py:{line}"))
    packed = [tensor for tensor in tensors.values() if tensor.codec is not None]
    assert packed
    assert {tensor.location.line for tensor in packed} == {line}


def test_the_first_rule_that_applies_is_used():
    rules = saved.rule(saved.codecs.int8(), min_numel=8 * 64), saved.rule(saved.codecs.bf16())
    tensors = packed_with(*rules)
    codecs = {tensor.codec for tensor in tensors.values() if tensor.is_activation}
    assert codecs == {"int8(row)", "bf16"}
    assert {tensor.rule for tensor in tensors.values() if tensor.codec} == set(map(str, rules))


def test_a_rule_whose_codec_does_not_take_a_tensor_passes_it_on():
    tensors = packed_with(saved.rule(saved.codecs.fp8(per="block", block=64)), saved.rule(saved.codecs.bf16()))
    assert {tensor.codec for tensor in tensors.values() if tensor.shape[-1] == 16 and tensor.is_activation} == {"bf16"}


def test_rules_that_apply_to_nothing():
    with graphs_saved() as graphs, saved.hooks(saved.rule(EXACT, name="conv")):
        torch.compile(Model(), backend="aot_eager")(torch.randn(8, 16))
    assert graphs[0].unused_rules == ("rule(negated, name='conv')",)


WEIGHT = nn.Parameter(torch.randn(16, 4))


def relu_only(x):
    """Backward reads the output of ReLU only as a mask: the sum needs no values."""
    return F.relu(x * 2).sum()


def relu_and_matmul(x):
    return F.relu(x * 2) @ WEIGHT


def test_mask_only():
    x = torch.randn(8, 16, requires_grad=True)
    for fn, expected in ((relu_only, {"bits"}), (relu_and_matmul, {None})):
        torch._dynamo.reset()
        tensors = packed_with(saved.rule(saved.codecs.bits(), mask_only=True), model=fn, x=x)
        assert {tensor.codec for tensor in tensors.values() if tensor.is_activation} == expected


def test_a_codec_without_zeros_packs_no_mask():
    """1e-6 of noise on a saved ReLU output lets every gradient pass: the error of the gradient was 0.76."""
    noisy = saved.Codec("noisy", lambda x: x + 1e-6, lambda x: x, keeps_zeros=False)
    tensors = packed_with(saved.rule(noisy), model=relu_and_matmul, x=torch.randn(8, 16, requires_grad=True))
    relu = next(tensor for tensor in tensors.values() if tensor.reads_as_mask)
    assert relu.codec is None
    assert "does not keep zeros" in relu.why


@pytest.mark.slow
def test_a_small_tensor_that_would_grow_stays():
    """A row of one number takes a scale of four bytes more."""
    tensors = packed_with(saved.rule(saved.codecs.fp8()), model=nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh()))
    grown = [tensor for tensor in tensors.values() if tensor.is_activation and tensor.saved_bytes > tensor.bytes]
    assert grown == []
    assert any("would store" in tensor.why for tensor in tensors.values())


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"min_numel": -1},
        {"min_numel": 1.5},
        {"name": "("},
        {"module": 3},
        {"line": "model.py"},
        {"mask_only": "yes"},
        {"skip": ("weights",)},
    ],
    ids=str,
)
def test_invalid_options(options):
    with pytest.raises(UsageError):
        saved.rule(saved.codecs.fp8(), **options)


def test_no_codec():
    with pytest.raises(UsageError, match="is not a codec"):
        saved.rule("fp8")
    with pytest.raises(UsageError, match="is not a rule"):
        saved.hooks(saved.codecs.fp8())


def test_text():
    text = str(saved.rule(saved.codecs.fp8(), dtype=torch.float32, name="gelu", skip=("param",)))
    assert text == "rule(fp8(row), dtype=torch.float32, name='gelu', skip=('param',))"


class TestDynamicSizes:
    """What a limit decides for the first size of a dynamic graph was decided for all."""

    def stored(self, rows, *rules, model=None):
        """Return for each number of rows whether the activation was packed, and how often the model was compiled."""
        compiled = torch.compile(model or nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8)), backend="aot_eager")
        packed = []
        with graphs_saved() as graphs:
            for count in rows:
                with saved.hooks(*rules):
                    out = compiled(torch.randn(count, 16))
                (saved_by,) = [node for node in nodes_of(out.grad_fn) if "CompiledFunction" in node.name()]
                packed.append(any(t.dtype is torch.float8_e4m3fn for t in saved_by.saved_tensors))
        return packed, len(graphs)

    @pytest.mark.slow
    @pytest.mark.parametrize("rows", [(8, 12, 100, 200, 9), (200, 100, 12, 8, 150)])
    def test_min_numel_is_kept_for_each_size(self, rows):
        packed, compiles = self.stored(rows, saved.rule(saved.codecs.fp8(), min_numel=1500))
        assert packed == [count * 64 >= 1500 for count in rows]
        assert compiles <= 3

    @pytest.mark.slow
    def test_a_limit_that_no_size_crosses_compiles_nothing_again(self):
        packed, compiles = self.stored((30, 40, 50, 60, 70), saved.rule(saved.codecs.fp8(), min_numel=64))
        assert packed == [True] * 5
        assert compiles == 2  # the first size, then all sizes

    def test_sizes_that_only_a_run_knows_are_not_packed_below_a_limit(self):
        def model(x):
            return x[x[:, 0] > 0].exp()

        counted = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
        with counted, graphs_saved() as graphs, saved.hooks(saved.rule(saved.codecs.fp8(), min_numel=64)):
            torch.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(40, 16, requires_grad=True) * 1)
        assert all(tensor.codec is None for tensor in graphs[0].tensors)

    @pytest.mark.slow
    def test_a_codec_that_would_store_more_is_not_used_for_that_size(self):
        """int8 stores four more bytes for each row: more than bfloat16 where a row has two elements."""

        def model(x):
            return (x.to(torch.bfloat16) * 2).exp()

        compiled = torch.compile(model, backend="aot_eager", dynamic=True)
        with graphs_saved() as graphs:
            for last in (64, 2, 3, 32):
                with saved.hooks(saved.rule(saved.codecs.int8(), skip=())):
                    compiled(torch.randn(8, last, requires_grad=True))
        assert all(t.saved_bytes <= t.bytes for graph in graphs for t in graph.tensors)
        assert len(graphs) == 2


def nodes_of(node):
    """Return the nodes of an autograd graph."""
    found, waiting = [], [node]
    while waiting:
        if (current := waiting.pop()) is not None and current not in found:
            found.append(current)
            waiting += [following for following, _ in current.next_functions]
    return found


class TestOutputs:
    """A block that the user compiles returns what it saves: packing it frees nothing while the caller has it."""

    def test_an_output_is_skipped(self):
        tensors = packed_with(saved.rule(EXACT), model=lambda x: F.relu(x * 2), x=torch.randn(8, 16, requires_grad=True))
        (output,) = (tensor for tensor in tensors.values() if tensor.kind == "output")
        assert output.codec is None
        assert "as long as the caller keeps it" in output.why

    @pytest.mark.parametrize(
        "fn",
        [
            lambda x: (x * 2).exp().view(-1),
            lambda x: (x * 2).exp().split(4)[1],
            lambda x: (x * 2).exp()[:3],
            lambda x: ((y := (x * 2).exp()), y.t()),
        ],
        ids=["a view", "a part", "a slice", "two views"],
    )
    def test_a_view_of_an_output_is_an_output(self, fn):
        tensors = packed_with(saved.rule(EXACT), model=fn, x=torch.randn(8, 16, requires_grad=True))
        assert {tensor.kind for tensor in tensors.values() if "exp" in tensor.op} == {"output"}

    def test_another_result_of_the_operator_is_no_output(self):
        """The mask of dropout is not in memory since its result is."""
        tensors = packed_with(saved.rule(saved.codecs.bits()), model=nn.Dropout(0.5), x=torch.randn(8, 16, requires_grad=True))
        assert {tensor.dtype: tensor.codec for tensor in tensors.values()} == {"bool": "bits"}

    @pytest.mark.slow
    def test_the_new_value_of_an_input_is_no_output(self):
        """torch copies it to the input and frees it."""

        def fn(x, state):
            y = x.exp()
            state.copy_(y)
            return y.sin().sum()

        with graphs_saved() as graphs, saved.hooks(saved.rule(EXACT)):
            torch.compile(fn, backend="aot_eager")(torch.randn(8, 16, requires_grad=True) * 1, torch.zeros(8, 16))
        assert {t.kind for t in graphs[0].tensors if t.op == "aten.exp.default"} == {"activation"}

    def test_outputs_can_be_packed(self):
        rule = saved.rule(EXACT, skip=("param", "buffer"))
        tensors = packed_with(rule, model=lambda x: F.relu(x * 2), x=torch.randn(8, 16, requires_grad=True))
        assert {tensor.kind for tensor in tensors.values() if tensor.codec is not None} >= {"output"}

    def test_the_report_of_a_block_says_what_is_held(self):
        block = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        hooks = saved.hooks(saved.rule(saved.codecs.bits()), saved.rule(saved.codecs.fp8()))
        report = saved.report(block, torch.randn(256, 64), hooks=hooks, backend="aot_eager")
        assert (report.bytes, report.saved_bytes) == (0, 0)
        assert report.held_bytes == 2 * 256 * 64 * 4
        assert "1 output 65.5 kB" in report._repr_html_()

    @pytest.mark.parametrize("skip", [("param", "buffer", "input", "output"), ("param", "buffer")])
    def test_a_loop_over_compiled_blocks_holds_what_the_reports_say(self, skip):
        """Each report says how many bytes its block frees; the whole loop frees as many."""
        rules = saved.rule(saved.codecs.bits(), skip=skip), saved.rule(saved.codecs.fp8(), skip=skip)
        blocks = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3)]

        def stored(hooks):
            torch._dynamo.reset()
            x = torch.randn(256, 64, requires_grad=True)
            with hooks:
                for block in blocks:
                    x = torch.compile(block, backend="aot_eager")(x)
            kept = [tensor for node in nodes_of(x.grad_fn) for tensor in getattr(node, "saved_tensors", ())]
            unique = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in (*kept, x)}
            return sum(unique.values())

        plain, packed = stored(saved.hooks()), stored(saved.hooks(*rules))
        assert packed == plain if "output" in skip else packed < 0.65 * plain
