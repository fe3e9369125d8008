"""What a coordinator does beside its loop while it leads."""
