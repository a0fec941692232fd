"""Training data, written into tables and data sets while the training runs.

with TraceWriter({"step": "bigint", "loss": "double"}) as writer:
    for step, batch in enumerate(batches):
        writer.write(step=step, loss=losses_of(batch))
"""
