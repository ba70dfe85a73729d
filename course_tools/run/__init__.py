"""Execute lessons, and keep what they measured."""
