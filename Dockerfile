# `cfk serve` with a sealed catalogue: docker build -t cfk . ; see docs/how-to/deploy-the-server.md for how to run it.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
# What is compiled for the processor is kept where a read-only container can read it.
ENV NUMBA_CACHE_DIR=/opt/cfk/kernels \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1
COPY --from=build /wheels /wheels
# The model is loaded with the packages that it was trained with: give them, and their versions, as MODEL_PACKAGES.
ARG MODEL_PACKAGES="scikit-learn joblib"
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[serve]" ${MODEL_PACKAGES} && cfk warm-up && rm -r /wheels
USER 65532:65532
EXPOSE 5001
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5001/health', timeout=3)"]
ENTRYPOINT ["cfk", "serve", "--host", "0.0.0.0", "--port", "5001"]
CMD ["--bundle", "/data/catalogue.cfk", "--model", "/data/model.joblib", "--desired", "1", "--tokens", "/data/tokens.txt"]
