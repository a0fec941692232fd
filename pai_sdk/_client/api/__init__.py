"""The wire, client side: signatures, transport, one module a resource."""
