"""Helpers that several suites use; what one suite alone uses stays beside its tests."""
