# A client without PyTorch: Python, numpy and offbeat_client. Its program is yours; join_site.py is an example.
#
#     docker build --file deploy/client.Dockerfile --tag offbeat-client .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim
COPY packages/client/pyproject.toml packages/client/README.md LICENSE /build/
COPY src/offbeat_client /build/src/offbeat_client
RUN pip install --no-cache-dir /build \
  && rm -r /build \
  && useradd --uid 10001 --no-create-home offbeat \
  && mkdir -p /srv/offbeat/client /srv/offbeat/handout /srv/offbeat/digits \
  && chown -R offbeat /srv/offbeat
ENV PYTHONUNBUFFERED=1
WORKDIR /srv/offbeat
COPY deploy/join_site.py ./
USER 10001
ENTRYPOINT ["python"]
CMD ["join_site.py", "--help"]
