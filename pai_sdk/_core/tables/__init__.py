"""Tables as values, with renderers for terminals, HTML pages and JSON."""
