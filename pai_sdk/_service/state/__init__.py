"""The state of the service: its database and its data folder."""
