"""What-ifs: the fixes of a finding, tried while the program runs, by tracing its calls again with each fix.

When a function recompiles, or its graph breaks, the frame of the call is alive. A fix is then tried on it: the frame is traced
with the fix, without a backend and without running it, and the guards are kept. Each later call that recompiles is checked
against the guards of each fix, and traced once more with a fix whose guards do not accept it. So a run knows how many
compilations the program would need with the fix, and whether the fix raises, before anybody has changed the program.

`setups` says how a fix changes a trace, `earlier_calls` keeps what is needed to trace a call again, `variant` holds
the compilations of one function with one fix, `budget` limits the cost, and `listener` ties them to the compilations of a run.
"""
