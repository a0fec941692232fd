"""The actions of the API of DLC."""
