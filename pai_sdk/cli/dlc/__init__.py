"""`pai-sdk dlc`: the flags, files and output of the command line of DLC."""
