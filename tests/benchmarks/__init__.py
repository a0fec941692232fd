"""Benchmarks: each is a module named `bench_*`, measured many times in fresh processes. `make bench` runs them."""
