"""Runs: start, watch, publish, retry, and keep failures inside one dataflow."""
