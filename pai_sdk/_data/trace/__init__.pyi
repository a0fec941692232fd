# The names of the package, each with its home. Read by type checkers and by `pai_sdk._core.names.lazy_names`.

from pai_sdk._data.trace.hook import TraceHook as TraceHook
from pai_sdk._data.trace.hook import add_to_trace as add_to_trace
from pai_sdk._data.trace.hook import clear_trace_map as clear_trace_map
from pai_sdk._data.trace.hook import get_trace_map as get_trace_map
from pai_sdk._data.trace.hook import trace as trace
from pai_sdk._data.trace.odps import OdpsSink as OdpsSink
from pai_sdk._data.trace.parquet import ParquetSink as ParquetSink
from pai_sdk._data.trace.recis import TraceToOdpsHook as TraceToOdpsHook
from pai_sdk._data.trace.recis import retry as retry
from pai_sdk._data.trace.trace_data import TraceData as TraceData
from pai_sdk._data.trace.trace_data import read_trace as read_trace
from pai_sdk._data.trace.trace_writer import TraceStats as TraceStats
from pai_sdk._data.trace.trace_writer import TraceWriter as TraceWriter
