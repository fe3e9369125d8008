"""The coordinator: synchronous machines that take events and give intents, and a thin driver around them."""
