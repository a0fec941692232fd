"""Tables: the part of MaxCompute's REST and tunnel wire that traces need, over Parquet files."""
