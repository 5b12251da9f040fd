"""Helpers of the rules: facts about guards and graph breaks, options of libraries, and shared advice and fixes."""
