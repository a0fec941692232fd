"""The parts of the checks of a CreateJob."""
