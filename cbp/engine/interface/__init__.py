"""The interface between the controller and an engine, and what an engine cannot do."""
