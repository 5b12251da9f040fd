"""Render what `dynx.comptime` and detailed watches say about a trace of Dynamo."""
