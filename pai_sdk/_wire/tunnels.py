"""Requests that carry tunnels into running jobs where a proxy passes no WebSockets on."""

MESSAGE_NUMBER = "Number"
"""The parameter with the number of a message, which counts from 0 in each direction."""
