from pai_sdk._client.model import ModelRecipe as ModelRecipe
from pai_sdk._client.model import ModelRecipeType as ModelRecipeType
from pai_sdk._client.model import ModelTrainingRecipe as ModelTrainingRecipe
from pai_sdk._client.model import RegisteredModel as RegisteredModel
