"""The command that searches for hyperparameters: tune."""
