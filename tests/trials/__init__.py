"""Long runs with seeded faults: `python -m tests.trials NAME …`. Each has a short form among the tests."""
