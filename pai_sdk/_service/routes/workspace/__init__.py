"""The actions of the workspace API on what jobs of DLC refer to."""
