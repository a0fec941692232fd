"""Resources that jobs run on, as the API of training jobs lists them: spot prices, and what a quota runs."""
