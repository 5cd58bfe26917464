"""From MLflow to evidence: runs are found, their files fetched and joined."""
