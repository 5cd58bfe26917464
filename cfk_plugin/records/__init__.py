"""What is kept of every release: the ledger, the privacy budget, the MLflow run, and the spool before it."""
