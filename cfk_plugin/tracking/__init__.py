"""The log of every release: MLflow runs, and the journal of records that MLflow did not accept."""
