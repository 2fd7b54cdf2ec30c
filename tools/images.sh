#!/usr/bin/env bash
# Build the images of the template "service" from this checkout, print their sizes, and run a server and two sites in them.
#
#     make images                       # as root on Debian, with podman, runc and debootstrap
#
# The base is Debian 12 with its Python 3.11, made by debootstrap, since there may be no registry of images. WHEELS names a
# folder of wheels that are taken before those of the package index, TORCH_INDEX PyTorch's index.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/images
base=localhost/offbeat-base
context=$build/context
server=offbeat-trial

# As in python:slim there are pip, which may install into the system, and neither bytecode nor manuals.
make_base() {
  local root=$build/root
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates,python3 bookworm "$root" > "$build/debootstrap.log"
  python3 -m pip download --quiet --no-deps --dest "$root" pip
  chroot "$root" sh -ec 'rm /usr/lib/python3*/EXTERNALLY-MANAGED; set /pip-*.whl; python3 "$1/pip" install --quiet --no-index "$1"; rm "$1"'
  rm -r "$root"/var/{cache,lib}/apt "$root"/usr/share/{doc,locale,man}
  find "$root/usr" -name __pycache__ -prune -exec rm -r {} +
  ln -s python3 "$root/usr/bin/python"
  tar --create --directory "$root" . | podman import --quiet - "$base"
  rm -r "$root"
}

# The folder of a new federation, with the wheels of the checkout.
make_context() {
  rm -rf "$context" build/lib build/bdist.* packages/client/build
  cp -r src/offbeat/templates/service "$context"
  python3 -m pip wheel --quiet --no-deps --wheel-dir "$context" ./packages/client .
  if [ -n "${WHEELS:-}" ]; then
    cp "$WHEELS"/*.whl "$context"
  fi
}

# With the machine's certificates, for a package index behind a proxy that has its own; without podman's cache, which does not
# look at the wheels.
build_image() {
  podman --runtime runc build --quiet --no-cache --network host --build-arg BASE="$base" \
    --volume /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro \
    ${TORCH_INDEX:+--build-arg TORCH_INDEX="$TORCH_INDEX"} "$@" "$context"
}

# As compose.yaml does it. The limits are low enough for a root that may not raise its own.
run() {
  podman --runtime runc run --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --read-only --tmpfs /tmp --cap-drop all \
    --security-opt no-new-privileges "$@"
}

# All containers are in the server's network, which has nothing but the loopback device.
site() {
  run --rm --network "container:$server" --volume "$server:/srv/offbeat/handout:ro" --volume /srv/offbeat/client "$@"
}

remove_trial() {
  podman rm --force --volumes "$server"
  podman volume rm --force "$server"
} > /dev/null

# A site with PyTorch and one without take part in a run of 100 versions.
try_images() {
  local program=$build/site.py with_torch without
  trap remove_trial EXIT
  remove_trial
  cat > "$program" << 'PROGRAM'
import pathlib
import time

import offbeat_client


def fit(model, visit):
    time.sleep(0.2)  # that the other site has time to join
    return model, 10


token = pathlib.Path("handout/enrolment-token").read_text().strip()
print(offbeat_client.run("https://localhost:8443", fit, enrolment_token=token, ca="handout/tls/ca.pem"), "updates counted")
PROGRAM
  run --detach --name "$server" --network none --volume "$server:/srv/offbeat/server" offbeat \
    server start server.toml --set stop.versions=100 > /dev/null
  for _ in {1..60}; do
    podman exec "$server" offbeat server status server > /dev/null 2>&1 && break
    sleep 1
  done
  site offbeat join https://localhost:8443 --token-file handout/enrolment-token --ca handout/tls/ca.pem \
    --client client.py:make_client --name with-torch &
  with_torch=$!
  site --volume "$PWD/$program:/srv/offbeat/site.py:ro" offbeat-client site.py &
  without=$!
  wait "$with_torch"
  wait "$without"
  podman exec "$server" offbeat server clients server
  podman exec "$server" offbeat server export server --output /tmp/model.safetensors
}

mkdir -p "$build"
podman image exists "$base" || make_base
make_context
build_image --target client --tag offbeat-client
build_image --target light --tag offbeat-helper
build_image --tag offbeat
podman images --filter reference='localhost/offbeat*' --format '{{.Repository}} {{.Size}}'
try_images
