"""Faults in `dynx/cudagraphs/_graph/`, and the test files that have to fail for each."""

from __future__ import annotations

from fault import Fault

FAULTS = (
    Fault(
        "writes are not ordered after earlier reads",
        "_graph/partition.py",
        "if is_write or other_writes:",
        "if False:",
        "test_partition.py::test_split_graph_reads_an_input_before_it_is_mutated",
    ),
    Fault(
        "random operators are not kept in program order",
        "_graph/partition.py",
        "*pairwise(random)",
        "*()",
        "test_partition.py::test_random_operators_of_split_graphs_keep_program_order",
    ),
    Fault(
        "getitem leaves the piece of the uncaptured operator it reads",
        "_graph/partition.py",
        "if node.target is getitem and node.args[0] in uncaptured:",
        "if False:",
        "test_partition.py::test_mutations_in_split_graphs_keep_program_order",
    ),
    Fault(
        "symbolic sizes are not inputs of a piece",
        "_graph/split.py",
        "dict.fromkeys([*numbers, *outside])",
        "dict.fromkeys(outside)",
        "test_partition.py::test_split_graph_with_dynamic_shapes_matches_eager",
    ),
    Fault(
        "tensors saved by a split graph are overwritten",
        "_graph/split.py",
        "kept.sort(key=lambda node: node not in internal)",
        "kept.sort(key=lambda node: node in internal)",
        "test_saved_tensors.py::test_two_forwards_of_a_split_graph_before_backward_match_eager",
    ),
    Fault(
        "unbacked sizes missing from the scalars are ignored",
        "_graph/plan.py",
        "_symbols(node) <= known_symbols",
        "True",
        "test_torch_features.py::test_new_nested_tensors_do_not_trigger_a_recapture",
    ),
)
