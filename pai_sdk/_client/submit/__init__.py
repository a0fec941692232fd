"""From the parameters of a submitter to a plan, with all mistakes reported at once."""
