"""Holds what people do with dead letters, and the store that keeps both: no command line, no HTTP."""
