"""Render traces of Dynamo: the debugger, post-mortems and the timeline."""
