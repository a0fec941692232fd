"""What a service tells its operators."""
