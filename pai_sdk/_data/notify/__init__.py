"""Notifications: messages about jobs, their targets and senders; used by client and service."""
