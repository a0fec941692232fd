"""Tests of the page of the service: who is let in, and how its files are served."""
