"""Running jobs on machines we control: the same contract in every place."""
