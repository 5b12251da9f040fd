"""Render what `dynx.comptime` recorded while Dynamo traced: the debugger, post-mortems of graph breaks, and the timeline."""
