"""Work in threads of its own: the scheduler, schedules, metrics and usage of running jobs."""
