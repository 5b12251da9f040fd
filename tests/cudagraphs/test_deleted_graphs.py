"""Graphs are deleted while another thread captures, or before the streams that replay them are done."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime import capture_lock
from dynx.cudagraphs._runtime.cuda_rng import SeedlessGraph
from dynx.cudagraphs._runtime.stream_order import StreamOrder


class Owner:
    """Something whose deletion a weak reference tells."""


class Graph:
    """Stands for a torch.cuda.CUDAGraph; remembers which threads captured when it was reset, and when it was deleted."""

    def __init__(self):
        self.captures_meanwhile = []

    def reset(self):
        self.captures_meanwhile.append(list(capture_lock.capturing_threads))

    def __del__(self):
        self.captures_meanwhile.append(list(capture_lock.capturing_threads))


class OtherCapture:
    """A capture in another thread, from `begin` to `end`."""

    def __init__(self):
        self._is_inside, self._may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._capture, daemon=True)

    def _capture(self):
        with capture_lock.exclusive_capture():
            self._is_inside.set()
            self._may_end.wait(30)

    def begin(self, seconds=30):
        self._thread.start()
        self._is_inside.wait(seconds)

    def end(self):
        self._may_end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def owned(wait=lambda: True):
    """Return an owner of a graph, and what the graph remembers."""
    owner, graph = Owner(), Graph()
    owner.graph = graph
    capture_lock.destroy_outside_of_captures(owner, graph, wait)
    return owner, graph.captures_meanwhile


def test_a_capture_begins_while_a_deleted_graph_waits_for_its_replays():
    capture = OtherCapture()

    def wait():
        capture.begin(seconds=0.2)
        return True

    owner, captures_meanwhile = owned(wait)
    del owner
    capture.end()
    with capture_lock.exclusive_capture():
        pass
    assert captures_meanwhile == [[], []]


def test_a_graph_is_deleted_while_another_thread_captures():
    capture = OtherCapture()
    owner, captures_meanwhile = owned()
    capture.begin()
    del owner
    assert captures_meanwhile == []
    capture.end()
    assert captures_meanwhile == [[], []]


def test_the_last_reference_to_a_destroyed_graph_is_deleted_while_another_thread_captures():
    capture = OtherCapture()
    owner, captures_meanwhile = owned()
    graph = owner.graph
    del owner
    capture.begin()
    del graph
    assert captures_meanwhile == [[]]
    capture.end()
    with capture_lock.exclusive_capture():
        assert captures_meanwhile == [[], []]


def test_a_graph_is_deleted_while_it_cannot_be_waited_for():
    can_wait = []
    owner, captures_meanwhile = owned(lambda: bool(can_wait))
    del owner
    assert captures_meanwhile == []
    can_wait.append(True)
    with capture_lock.capture_lock():
        assert captures_meanwhile == []
    assert captures_meanwhile == [[], []]


@pytest.mark.slow
def test_graphs_are_deleted_by_many_threads():
    remembered = []

    def make_and_delete():
        for number in range(100):
            owner, captures_meanwhile = owned()
            owner.itself = owner  # deleted by a garbage collection, in any thread
            remembered.append(captures_meanwhile)
            del owner
            if number % 5 == 0:
                with capture_lock.exclusive_capture():
                    remembered.append(owned()[1])
            if number % 7 == 0:
                gc.collect()

    threads = [threading.Thread(target=make_and_delete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gc.collect()
    with capture_lock.exclusive_capture():
        pass
    assert len(remembered) == 480
    assert all(captures_meanwhile == [[], []] for captures_meanwhile in remembered)


@pytest.mark.gpu
def test_the_exception_of_a_failed_capture_is_deleted_while_another_thread_captures(monkeypatch):
    """The locals of its traceback have the graph, which torch must not delete while a capture begins."""
    graphs, make_graph, layer = [], SeedlessGraph, nn.Identity()

    def observed(**options):
        graph = make_graph(**options)
        graphs.append(weakref.ref(graph))
        return graph

    def failing(x):
        if torch.cuda.is_current_stream_capturing():
            raise KeyError("no")
        return layer(x * 2)

    x, run = torch.ones(3, device="cuda"), cudagraphs.fast_path(failing)
    run(x)
    monkeypatch.setattr("dynx.cudagraphs._runtime.cuda.SeedlessGraph", observed)
    with pytest.raises(KeyError) as raised:
        run(x)
    failed, capture = graphs[0], OtherCapture()
    assert failed() is not None
    capture.begin()
    del raised
    gc.collect()
    assert failed() is not None
    capture.end()
    with capture_lock.exclusive_capture():
        assert failed() is None


@pytest.mark.gpu
def test_a_stream_begins_to_wait_while_a_graph_is_deleted(monkeypatch):
    """The deletion has to wait for the stream before, whose replay is not done."""
    before, after = torch.cuda.Stream(), torch.cuda.Stream()
    order, is_waiting, may_go_on = StreamOrder(0), threading.Event(), threading.Event()
    order.follow(before.cuda_stream)
    with torch.cuda.stream(before):
        torch.cuda._sleep(1_000_000_000)
        done = before.record_event()
    record = torch.cuda.Event.record

    def slow_record(event, stream):
        is_waiting.set()
        may_go_on.wait(30)
        record(event, stream)

    monkeypatch.setattr(torch.cuda.Event, "record", slow_record)
    thread = threading.Thread(target=order.follow, args=(after.cuda_stream,))
    thread.start()
    is_waiting.wait(30)
    assert order.synchronize()
    is_done = done.query()
    may_go_on.set()
    thread.join(30)
    assert is_done
