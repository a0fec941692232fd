"""The agent stays on a host with a job: supervisor, journal, `/ml`, signals. Standard library only."""
