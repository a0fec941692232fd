"""What a person sees of a job while waiting for it, in a terminal and in a notebook."""
