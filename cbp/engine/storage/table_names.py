"""Folder names of the tables in a dataflow's folder, relative to it."""

from __future__ import annotations

from cbp.model.dataflow.dataflow import StageNode


def state_table(stage: str, state: str) -> str:
    """Return the folder of a state table."""
    return f"state/{stage}.{state}"


def flow_table(stage: str, output: str) -> str:
    """Return the folder of an output flow's table."""
    return f"flows/{stage}.{output}"


def stage_tables(node: StageNode) -> list[str]:
    """Return the folders of a stage's tables, state first."""
    flows = [flow_table(node.name, output.name) for output in node.translator.outputs]
    return carried_tables(node) + flows


def carried_tables(node: StageNode) -> list[str]:
    """Return the folders of the tables that a stage keeps from epoch to epoch."""
    states = [state_table(node.name, state.name) for state in node.translator.states]
    return states + ([set_aside_table(node.name)] if node.sets_aside else [])


def superstep_folder(stage: str) -> str:
    """Return the folder of the logs of a stage's loops."""
    return f"_supersteps/{stage}"


def set_aside_table(stage: str) -> str:
    """Return the folder of a stage's set-aside records."""
    return f"set_aside/{stage}"


def rejects_table(source: str) -> str:
    """Return the folder of a source's rejected records."""
    return f"rejects/{source}"


def source_folder(source: str) -> str:
    """Return the folder of a source's increments."""
    return f"sources/{source}"
