"""The cache of torch.compile: inspect it, explain recompiles, measure guards, separate it by backend and configuration.

The problem
===========

torch.compile keeps compiled code with the *code object* of the function, not with the callable that it returns: Dynamo stores a
list of cache entries in the code object's extra state, and every compiled wrapper of the same function uses the same list. An
entry consists of

- a tree of guards on the locals, globals and ambient state that the trace depended on,
- the compiled bytecode,
- the backend that compiled it, and its compile id (`0/1`: the second compilation of frame 0),
- from torch 2.13 on a region number, if it was compiled with `isolate_recompiles`.

Code objects are not the same as functions. A function with a graph break has a resume function for the code after the break,
with a code object and entries of its own. Built-in modules, callable objects and functions with a decorator of torch run in
one wrapper (`torch._dynamo.external_utils.wrap_inline`), so that all of them share one code object and one list.

How a call finds its entry
==========================

A compiled wrapper installs its backend as the frame evaluation callback and calls the function. When the frame begins, torch

1. checks the precompiled entries of the code object, without comparing backends (`guards.pin` adds an entry to them);
2. checks the other entries, newest or most recently hit first: the region must be that of the wrapper or none, the backend must
   be the same object (or of the same type and equal), and all guards must hold. A hit moves the entry to the front;
3. if none fits, compiles, unless the code object has `recompile_limit` (8) entries or was compiled
   `accumulated_recompile_limit` (256) times. At a limit it runs the function eagerly, and keeps doing so for calls that fit no
   entry.

Neither `fullgraph`, `dynamic`, `mode`, `options` nor `torch._dynamo.config` is part of the lookup, unless it happens to change
the identity of the backend or a guard. Hence:

- A backend that is created again for each call of torch.compile (a lambda, a partial) never hits, and uses up the limit.
- Two backends on one function share one limit: recompiles with the first make the second run eagerly.
- `fullgraph=True` may run code that was compiled with a graph break; after a change of configuration, the old code runs.

What dynx.compile guarantees
============================

1. *A backend is a value.* `_compile/backend_value` computes a key from code, defaults, closure, globals and options. Equal keys
   share one backend object; what could change without changing the key is compared by identity. `guards.keyed` does only this.
2. *A key per compilation.* The backend object that torch sees exists once for each key of backend, `fullgraph`, `dynamic`,
   `mode`, `options` and configuration fingerprint, and is equal to nothing but itself. It is held weakly: it lives as long as
   compiled functions that use it.
3. *A list per key.* The entries of a key are in a separate region (from torch 2.13 on) or in a copy of the code object
   (before): calls with other keys do not run them, nor count them towards the recompile limit.
4. *The key is checked when it matters.* The configuration is read at each call, the backend when `dynx.compile` is called and
   when it compiles. A backend that changed in between is no longer shared.
5. *Nothing is hidden.* A difference between keys is reported as the reason of the recompile; reaching a limit warns.

Consequences for reading and changing the cache
===============================================

- A callable must first be traced back to its code objects (`_cache/target`, with `dynx._torch.compilation.unwrap`); in shared
  code the guards on the wrapped callable decide to which callable an entry belongs (`_cache/owner`).
- An entry lives in C++ and may be freed at any time. Records (`Entry`) are plain data; `evict` and `pin` find the entry of a
  record by a handle, or raise `StaleEntry` if the entry's guard manager was freed.
- Freeing an entry while another thread evaluates its guards crashes. `evict`, `reset`, `pin` and `Pin.remove` wait until no
  other thread is in a call of compiled code.
- torch cannot undo changes of an entry. The counter of `count_hits` stays in the entry. Dict tags, by which torch skips the
  guards of modules whose dictionaries have not changed, can only be removed together with the entry. An evicted entry counts
  towards the recompile limit.
- Guards take microseconds and may run code of the user. They are timed on copies (`_cost/profile`), and `would_recompile`
  evaluates them once, through torch's own lookup.
"""

from __future__ import annotations

from dynx.guards._cache.hits import count_hits
from dynx.guards._cache.inspect import evict, inspect, pin, reset
from dynx.guards._cache.would_recompile import would_recompile
from dynx.guards._compile.compile import compile
from dynx.guards._compile.keyed_backend import keyed
from dynx.guards._cost.profile import profile

__all__ = ["compile", "count_hits", "evict", "inspect", "keyed", "pin", "profile", "reset", "would_recompile"]
