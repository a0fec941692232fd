"""The service, over real HTTP."""
