"""Inspect and control what torch.compile does while it traces a program.

This page explains the idea that the package rests on. Importing the package adds two entries to torch's own table
of known objects, `comptime` and this module, and changes nothing else.

The problem: one line, several traces
=====================================

Dynamo compiles a frame by executing its bytecode symbolically, one instruction at a time. It does so in *attempts*.
Tracing starts optimistically: at an instruction that may break the graph, Dynamo speculates that it will not. If it
does, Dynamo records this in a log, throws the whole attempt away (output graph, guards, side effects), and traces the
frame again from its first instruction. In the new attempt it finds the instruction in the log and, without executing
it, ends the graph right before it. Other findings restart the analysis in the same way, for example that a module must
not be specialized, or that a float must be. So:

- A frame is traced once plus once for every restart. One line of a function with three graph breaks can be traced
  many times.
- At most one attempt *commits*: its trace becomes a cache entry, or turns out to have no operations to compile. The
  others are discarded. All attempts may be discarded: then torch skips the frame, which runs eagerly, or the
  compilation fails.
- The code after a graph break becomes a *resume function*: a frame with a compile id and attempts of its own.
- Generators, inlined functions and loops are traced as often as the program executes them, within each attempt.

A callback that Dynamo calls while it traces a line therefore runs at *every* attempt. The user thinks in *logical
hits* instead: one hit for each execution of the line in the code that finally runs. A tool that prints, counts, guards
or breaks graphs during tracing has to decide for each of its effects whether it belongs to the attempt or to the hit.
`torch._dynamo.comptime` does not decide: it prints again on every restart.

Which effects apply to what
===========================

==============================================  ===========================================================================
what a callback does                            when it takes effect
==============================================  ===========================================================================
runs arbitrary Python (`list.append`, files)    at every attempt, as in torch: nothing can undo it
`ctx.log`, `ctx.print`, `comptime.print…`,      once for each hit: kept with the attempt (`_output`), shown in order when
`Probe.hits`                                    the attempt commits, dropped when a restart discards it
`breakpoint()`, `ctx.debug()`, output to a      at once, in every attempt: a person is waiting for the answer, or the
`file=`                                         callback may read or close the file
`ctx.check`, `assume`, `constrain`,             at every attempt: an attempt starts with an empty graph and no guards, so
`guard_on`, `force_static`, the returned        the effect must be repeated, or the attempt that commits would lack it
value, guards on closed-over variables
`ctx.graph_break`                               once: the next attempt ends the graph there and does not call the callback
==============================================  ===========================================================================

The last row has a catch. Output of the callback that broke the graph belongs to the attempt that was thrown away, and
no later attempt repeats it. `_output.carry_over` moves it to the attempt that follows.

If an attempt is discarded without a restart, because torch skips the frame or compilation fails, its output is
printed below a line that says so, and its log records have the outcome "skipped" or "failed". The output often
explains the failure.

How a callback is called
========================

1. A call in the source, `comptime(fn)`. Dynamo looks up objects by id in `VariableBuilder._id_dispatch()`; the entry
   for `comptime` makes it call `_callback.call(tx, args, kwargs)` with the frame's `InstructionTranslator` (`tx`).
   Arguments are symbolic variables. What `fn` closes over is converted to real values where they are known at compile
   time, otherwise to ComptimeVars.
2. A line hook, `probe(..., mode="hook")`. While a probe is armed, `InstructionTranslatorBase.run` is wrapped. At the
   start of a frame that contains the statement, the frame's translator gets a dispatch table of its own, which runs
   the probe right before the instructions at which the statement begins. Bytecode is unchanged, so a cache entry that
   exists already is used and the frame is not traced: the probe fires at the next compilation.
3. Bytecode rewriting, `probe(..., mode="rewrite")`. The function gets a new code object with a call to a marker
   before the statement; the tracer handles the marker as in 1. A new code object has no cache entries, so the next
   call is traced. Removing the probe restores the old code object together with its cache entries.

All three reach `_callback.run`, which creates the ComptimeContext, applies `on_error`, and ends the context. 2 and 3
run the callback as an instruction at which a graph may break, therefore `ctx.graph_break()` splits the graph exactly
at the statement.

How the debugger goes back
==========================

Symbolic execution cannot be reversed, and a second execution could differ. `debug` wraps
`InstructionTranslatorBase.step` and writes one row into a `Trail` before every instruction: frame, instruction,
caller, value stack, locals, node and guard counts, exception. Values are stored as text, equal texts once; stacks and
locals are linked lists that share their unchanged parts, so a row takes about 70 bytes. `back` and `forward` move
through the rows and run nothing. Stop conditions are predicates on rows (`_stops`), so `n` means the same in the
past, in the present, and after the trace has ended.

Restarts reach the user of the debugger as well. `_trail_reader.history` leaves out the attempts that a later attempt
replaced; the debugger does not stop at rows in which an attempt repeats the previous one; frames are identified by
compile id and by their order in the attempt, which a restart does not change.

Invariants
==========

- An observer changes nothing. With and without `post_mortem`, `timeline` and `debug` the graphs, guards, bytecode and
  number of compilations are the same. To this end observers read variables (`_torch.tracing.render`,
  `_torch.trace_log`) without realizing lazy ones, since realizing a variable adds its guard, and call no methods of
  user objects. A callback that only prints or logs adds only the guard on the callback itself.
- An explicit read may add a guard: the methods of a ComptimeVar, such as `ctx.local("x").size()`, read a value as the
  program would, with the guard that the program would add. Closed-over values are guarded on once the trace depends on
  them, through a returned value, a graph break or a method such as `ctx.check`.
- The attempts of one compilation must meet the same callbacks, or Dynamo's speculation log no longer matches. A probe
  that is removed during a compilation stays armed until that compilation ends.
- Nothing of torch outlives its callback. Contexts and variables end with it and keep only text; records hold plain
  data.
- An observer that fails reports this once and the program continues without it. A callback that fails raises, unless
  `on_error` says otherwise.
- Removing the last handle restores the exact original objects of torch.

Consequences
============

- State that a callback keeps in Python (a list, a counter) is updated at every attempt. Use `ctx.log` or `Probe.hits`
  to count hits.
- A callback must decide the same way in every attempt. A callback that breaks the graph only on its first call still
  gets the break; a callback that decides by a clock or a random number may not.
- A callback runs at compile time only. A cache hit runs no callback; to trace compiled code again, call
  `torch._dynamo.reset()`.
- Output appears when the attempt ends, not when the line is traced.

Where to find it
================

`_comptime` the object that traced code calls; `_callback` how a callback runs; `_context` and `_values` what it can read
and change; `_output` effects shown once for each hit; `_probe`, `_bytecode_probe` and `_target` probes;
`_post_mortem`; `_timeline`; `_debug_session`, `_debug_commands`, `_stops` and `_trail_reader` the debugger.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from dynx._torch.tracing import comptime_variable as _variable
from dynx.comptime import _callback
from dynx.comptime._comptime import comptime
from dynx.comptime._context import ComptimeContext
from dynx.comptime._debug_session import debug
from dynx.comptime._post_mortem import PostMortem, post_mortem
from dynx.comptime._probe import Probe, probe
from dynx.comptime._timeline import Timeline, timeline
from dynx.comptime._values.var import ComptimeVar

__all__ = [
    "ComptimeContext",
    "ComptimeVar",
    "PostMortem",
    "Probe",
    "Timeline",
    "comptime",
    "debug",
    "post_mortem",
    "probe",
    "timeline",
]


class _CallablePackage(ModuleType):
    """The class of this module, so that `dynx.comptime(fn)` is the same as `dynx.comptime.comptime(fn)`, in traced code too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return comptime(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(comptime), name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(comptime, name)  # `dynx.comptime.print_graph()`


sys.modules[__name__].__class__ = _CallablePackage
_variable.recognise(sys.modules[__name__], _callback.call)
