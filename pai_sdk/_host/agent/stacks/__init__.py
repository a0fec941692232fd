"""Reads the stacks of all processes of an instance, from outside. Standard library only."""

from pai_sdk._host.agent.stacks.collecting import collect_stacks
from pai_sdk._host.agent.stacks.py_spy import find_py_spy

__all__ = ["collect_stacks", "find_py_spy"]
