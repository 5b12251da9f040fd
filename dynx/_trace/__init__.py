"""Hooks in torch.compile that turn each compilation into records (plain data about what was compiled, and why).

The problem. torch.compile does not report what it does as one event. Dynamo may trace a frame in several attempts, of which at
most one is committed, that is, its graph is compiled; a graph break, a guard and a backend failure surface in different
functions; a compilation may start another compilation; and compile ids repeat after `torch._dynamo.reset()`. A feature that
reports what was compiled, and why, needs all these events, once, and after the outcome is known. This package collects them for
every feature.

The path of a compilation, module by module:

1. Hook. `dynx._torch.hooks` wraps one function of torch per hook point (`dynx._torch.capabilities.HOOK_POINTS`), for example
   `convert_frame._compile`, which runs once per compilation, and `convert_frame.trace_frame`, which runs once per attempt.
2. Subscriber (`subscribers`). One function per hook point. It runs before torch's function with the same arguments and may
   return a second function, which runs after it with the result or the exception.
3. Compile scope (`compile_scope`). The subscriber of `_compile` opens a `Scope` on a stack of its thread; the other subscribers
   write into the innermost scope. The scope is a buffer: graph breaks, sizes that became dynamic, cache lookups, torch's
   warnings, failed guards, and one `Attempt` for each time Dynamo traced the frame. When an attempt begins, the guard requests
   of the previous attempt are discarded: an attempt that was restarted installs no guards. Its graph breaks are kept: they
   caused the restart.
4. Records. When `_compile` returns or raises, the scope is closed and `Scope.finish` returns its records: the details first,
   then `GaveUp`, `Recompile` and `Compile`. Events outside of any compilation (a skipped frame, a generator function, a
   backward graph compiled late) become records at once.
5. Listeners (`dispatch`). `emit` passes each record to every listener, on the thread that compiled. `bus.listen` adds a
   listener; the first one installs the hooks, and removing the last one restores torch. Optional callbacks run when
   a compilation begins (`on_start`) and when it ends, before its records (`on_end`: `compile_details` reads guards there).

The other modules turn torch's data into readable values: `guards.text` parses messages of failed guards, `guards.requests`
keeps the stacks that requested a guard, `recompile_reason` joins both with the current values (`safe_read`), `guards.records`
builds records of guards that hold, `effect_records` builds records of side effects, `cache_keys` explains recompiles of
`dynx.compile`, and `user_location` finds the line to show.

Invariants:

- Observers are passive. With and without a listener torch produces the same graphs, guards, bytecode, results and number of
  compilations. Subscribers read arguments and results; they run no code of the user (see `safe_read`) and realize no lazy
  variable.
- The key of a compilation is (generation, compile id). The generation counts resets, which are recognised by ids that do not
  grow, so that `reset` need not be patched.
- Nothing of the program or of torch stays alive because there was a listener. Records hold text and numbers. Live objects
  (locals, globals, guard sources) are referenced only by the scope, which drops them when it is closed, and by the
  `CompileEnd` that is passed to `on_end`, which must not keep it. What must outlive a compilation, to explain a later
  recompile, is plain data (`EntryFacts`, `SeenValues`); only `cache_keys` holds code objects, of functions compiled with
  `dynx.compile`. All of it is dropped with the last listener, except for the `EntryFacts` that live as long as their cache
  entry (`subscribers._facts_by_guards`); after a reset, those of earlier entries are dropped at the next compilation.
- A failing observer does not affect the program. An exception in a subscriber, in a listener or in a start listener becomes a
  `Trouble` record, and the other callbacks still run. A hook point that the installed torch lacks becomes a `Trouble` record
  when the hooks are installed, unless it is optional. An exception in a listener that receives a `Trouble` record is dropped.
"""
