# The server and all commands of Offbeat, with PyTorch for the CPU.
#
#     docker build --file deploy/server.Dockerfile --tag offbeat .
#
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 (the image then takes several GB).
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG TORCH="torch>=2.6,<2.14"
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY packages/client packages/client
COPY LICENSE packages/client/
COPY experiments experiments
COPY examples examples
# The server needs neither the packages' tests nor PyTorch's headers and tools: they take 250 MB.
RUN python -m venv /opt/offbeat \
  && /opt/offbeat/bin/pip install --no-cache-dir --index-url "${TORCH_INDEX}" "${TORCH}" \
  && /opt/offbeat/bin/pip install --no-cache-dir ./packages/client . \
  && find /opt/offbeat -type d -name tests -prune -exec rm -r {} + \
  && find /opt/offbeat -type d \( -path '*/torch/bin' -o -path '*/torch/include' \) -prune -exec rm -r {} +

FROM python:${PYTHON}-slim
COPY --from=build /opt/offbeat /opt/offbeat
COPY deploy/back_up.sh deploy/hand_out.sh /usr/local/bin/
# Volumes that are mounted on these folders belong to the user, too.
RUN useradd --uid 10001 --no-create-home offbeat \
  && mkdir -p /srv/offbeat/server /srv/offbeat/handout /srv/offbeat/backups /srv/offbeat/digits \
  && chown -R offbeat /srv/offbeat
ENV PATH=/opt/offbeat/bin:$PATH PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp
WORKDIR /srv/offbeat
USER 10001
EXPOSE 8443
ENTRYPOINT ["offbeat"]
CMD ["serve", "server.toml"]
