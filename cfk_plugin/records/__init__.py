"""What is kept of every release: an MLflow run, and the spool that feeds it."""
