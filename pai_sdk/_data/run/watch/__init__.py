"""The manager: reads many growing runs, and filters, sorts and compares them."""
