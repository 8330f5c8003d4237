"""The api plane: who may ask, and the answer to every request."""
