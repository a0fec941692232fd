"""The interfaces of MindInsight's data manager over a `RunManager`."""
