# The LangGraph server of compose.yaml: `langgraph dev` with the graphs of its build context. It keeps threads in memory and
# is for trials only.
FROM python:3.11.14-slim-trixie@sha256:193fdd0bbcb3d2ae612bd6cc3548d2f7c78d65b549fcaa8af75624c47474444d
WORKDIR /srv/graph
COPY requirements.lock.txt .
# The lock file has all dependencies, so pip resolves none.
RUN pip install --no-cache-dir --no-deps -r requirements.lock.txt
COPY --chown=65532:65532 . .
# The server writes its threads next to the graphs.
RUN chown 65532:65532 .
USER 65532:65532
ENV HOME=/srv/graph LANGSMITH_TRACING=false LANGGRAPH_CLI_NO_ANALYTICS=1
EXPOSE 2024
CMD ["langgraph", "dev", "--host", "0.0.0.0", "--port", "2024", "--no-browser", "--no-reload"]
