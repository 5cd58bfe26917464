"""What is kept of every release: ledger, privacy budget, MLflow run, and the spool that feeds
it.
"""
