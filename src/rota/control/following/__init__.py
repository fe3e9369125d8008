"""What a coordinator knows and waits for while another leads."""
