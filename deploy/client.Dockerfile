# A client without PyTorch: Python, numpy and offbeat_client. Its program is yours; join_site.py is an example.
#
#     docker build --file deploy/client.Dockerfile --tag offbeat-client .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim
RUN pip install --no-cache-dir "cryptography>=47" "httpx>=0.27" "numpy>=1.26" "pydantic>=2.12" "safetensors>=0.4.3" \
    "typing-extensions>=4.12" \
  && useradd --uid 10001 --no-create-home offbeat \
  && mkdir -p /srv/offbeat/client /srv/offbeat/handout /srv/offbeat/digits \
  && chown -R offbeat /srv/offbeat
COPY src/offbeat_client /opt/offbeat/offbeat_client
ENV PYTHONPATH=/opt/offbeat PYTHONUNBUFFERED=1
WORKDIR /srv/offbeat
COPY deploy/join_site.py ./
USER 10001
ENTRYPOINT ["python"]
CMD ["join_site.py", "--help"]
