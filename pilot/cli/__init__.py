"""The command line: a plain Hydra app for a recipe, and a few words for what comes after."""
