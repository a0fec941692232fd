"""Functions as trainings: in a thread, in a process, or in a job."""
