"""The modules of alipai, by their names there; `pai_sdk.alipai.paths` says under which paths they are found."""
