"""Training data, written into tables and data sets while the training runs.

with TraceWriter({"step": "bigint", "loss": "double"}) as writer:
    for step, batch in enumerate(batches):
        writer.write(step=step, loss=losses_of(batch))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pai_sdk.trace.hook import TraceHook, add_to_trace, clear_trace_map, get_trace_map, trace
    from pai_sdk.trace.odps import OdpsSink
    from pai_sdk.trace.parquet import ParquetSink
    from pai_sdk.trace.recis import TraceToOdpsHook, retry
    from pai_sdk.trace.trace_data import TraceData, read_trace
    from pai_sdk.trace.trace_writer import TraceStats, TraceWriter

_MODULES = {
    "OdpsSink": "odps",
    "ParquetSink": "parquet",
    "TraceData": "trace_data",
    "TraceHook": "hook",
    "TraceStats": "trace_writer",
    "TraceToOdpsHook": "recis",
    "TraceWriter": "trace_writer",
    "add_to_trace": "hook",
    "clear_trace_map": "hook",
    "get_trace_map": "hook",
    "read_trace": "trace_data",
    "retry": "recis",
    "trace": "hook",
}

__all__ = [
    "OdpsSink",
    "ParquetSink",
    "TraceData",
    "TraceHook",
    "TraceStats",
    "TraceToOdpsHook",
    "TraceWriter",
    "add_to_trace",
    "clear_trace_map",
    "get_trace_map",
    "read_trace",
    "retry",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
