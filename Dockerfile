# A protected model behind `mlflow models serve`; docs/how-to/serve-with-mlflow.md says how to build and run it.
FROM python:3.11-slim
ENV HOME=/tmp \
    MLFLOW_DISABLE_TELEMETRY=true
# The requirements may name a wheel in the folder of the model. The model itself is not in the image.
RUN --mount=type=bind,source=model,target=/model cd /model && pip install --no-cache-dir -r requirements.txt
USER 65532:65532
EXPOSE 5001
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5001/health', timeout=3)"]
ENTRYPOINT ["mlflow", "models", "serve", "--model-uri", "/model", "--env-manager", "local", "--host", "0.0.0.0", "--port", "5001"]
