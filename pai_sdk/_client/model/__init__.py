"""Registered models and the recipes that train them."""

from pai_sdk._client.model.recipe import ModelRecipe, ModelRecipeType, ModelTrainingRecipe
from pai_sdk._client.model.registered_model import RegisteredModel

__all__ = ["ModelRecipe", "ModelRecipeType", "ModelTrainingRecipe", "RegisteredModel"]
