"""What a service tells its operators: figures for Prometheus, and structured logs."""
