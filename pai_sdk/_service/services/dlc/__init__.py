"""What the actions of the API of DLC do."""
