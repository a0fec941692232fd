from pai_sdk._core.config.credentials import Credentials as Credentials
from pai_sdk._core.config.credentials import CredentialsProvider as CredentialsProvider
from pai_sdk._core.config.credentials import default_credentials as default_credentials
from pai_sdk._core.config.credentials import provider_of as provider_of
from pai_sdk._core.config.credentials import static_credentials as static_credentials
