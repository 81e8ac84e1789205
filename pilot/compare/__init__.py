"""Paired statistics between arms: differences, noise floor, early endings, words. Pure."""
