"""Training data, written into tables and data sets while the training runs.

with TraceWriter({"step": "bigint", "loss": "double"}) as writer:
    for step, batch in enumerate(batches):
        writer.write(step=step, loss=losses_of(batch))
"""

from __future__ import annotations

from pai_sdk._core.names.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
