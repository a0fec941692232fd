"""Rules about running jobs: pure functions of recorded signals, for the service and for `pai-sdk watch`.

    signals (log lines, metric points, CPU, I/O, process states, stacks, a clock) ──> RuleEvaluator ──> findings

Nothing here reads a clock, a file or a process.
"""
