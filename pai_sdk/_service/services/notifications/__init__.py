"""Notifications of a service: sealed targets, and a queue of messages in the database."""
