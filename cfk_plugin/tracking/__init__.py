"""What is kept of every release: an MLflow run, and the journal of what MLflow did not take."""
