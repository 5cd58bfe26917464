"""Where reports go: files, MLflow, the model registry, and the comparison with an earlier one."""
