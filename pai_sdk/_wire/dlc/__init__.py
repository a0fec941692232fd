"""The bodies of the API of DLC, version 2020-12-03, and what its names and values mean."""
