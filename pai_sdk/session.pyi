from pai_sdk._client.session import Session as Session
from pai_sdk._client.session import get_default_session as get_default_session
from pai_sdk._client.session import setup_default_session as setup_default_session
