"""Which jobs a command means: the place they run in, and the text that names one."""
