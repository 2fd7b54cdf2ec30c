# A client without PyTorch: Python, numpy and the distribution offbeat-client. Its program is yours; join_site.py is an example.
#
#     docker build --file deploy/client.Dockerfile --tag offbeat-client .
#
# The helper of private sums: --build-arg EXTRAS=[helper] --tag offbeat-helper, with offbeat-helper as its entry point.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim
ARG EXTRAS=""
COPY packages/client /build/
COPY LICENSE /build/
RUN pip install --no-cache-dir "/build${EXTRAS}" \
  && rm -r /build \
  && useradd --uid 10001 --no-create-home offbeat \
  && mkdir -p /srv/offbeat/client /srv/offbeat/helper /srv/offbeat/handout /srv/offbeat/digits \
  && chown -R offbeat /srv/offbeat
ENV PYTHONUNBUFFERED=1
WORKDIR /srv/offbeat
COPY deploy/join_site.py ./
USER 10001
ENTRYPOINT ["python"]
CMD ["join_site.py", "--help"]
