"""Commands on dataflows: register, watch, steer, change, verify."""
