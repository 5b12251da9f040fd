"""Measure how long checking guards takes in each call, and compare settings of torch that make the checks faster."""
