"""Watches running jobs: samples their signals, evaluates the rules, and acts on what these report."""
