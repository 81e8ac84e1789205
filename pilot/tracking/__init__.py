"""The MLflow projection of a pilot: it only reads the folder, and never changes the verdict."""
