"""Schedules: jobs that the service creates at the times of a cron expression."""
