#!/usr/bin/env bash
# A client of the service in curl. curl_train.py trains; it needs numpy and safetensors.
#
#   examples/clients/curl_client.sh URL TOKEN-FILE FOLDER SHARD [CA]
set -euo pipefail
umask 077
url=$1 token_file=$2 folder=$3 shard=$4
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
mkdir -p "$folder"

ask() {
  curl --silent --show-error --fail --retry 5 --header "Offbeat-Protocol: 1.0" ${ca:+--cacert "$ca"} "$@"
}
ca=${5:-}

# The client's token is on disk before the server learns it, so that enrolment can be repeated.
if [ ! -e "$folder/enrolled" ]; then
  if [ ! -e "$folder/token" ]; then
    echo "obc_$(head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n')" > "$folder/token.partial"
    mv "$folder/token.partial" "$folder/token"
  fi
  # Headers come from files: other users of the machine can read arguments.
  echo "Authorization: Bearer $(cat "$token_file")" > "$folder/enrolment.header"
  printf '{"name": "curl", "token": "%s"}' "$(cat "$folder/token")" > "$folder/enrolment.json"
  ask --header "@$folder/enrolment.header" --header "Content-Type: application/json" \
    --data "@$folder/enrolment.json" "$url/v1/enrol" > "$folder/enrolled.partial"
  mv "$folder/enrolled.partial" "$folder/enrolled"
  rm "$folder/enrolment.header" "$folder/enrolment.json"
fi
echo "Authorization: Bearer $(cat "$folder/token")" > "$folder/token.header"

while true; do
  ask --header "@$folder/token.header" --header "Content-Type: application/json" \
    --data '{"wait_seconds": 20.0}' "$url/v1/checkin" > "$folder/checkin.json"
  read -r state number version <<< "$("$python" -c '
import json, sys
answer = json.load(open(sys.argv[1]))
visit = answer["visit"] or {"number": "-", "version": "-"}
state = "over" if answer["finished"] else "visit" if answer["visit"] else str(answer["retry_after_seconds"] or 0)
print(state, visit["number"], visit["version"])' "$folder/checkin.json")"
  case $state in
    over) echo "the run is over"; exit 0 ;;
    visit) ;;
    *) sleep "$state"; continue ;;
  esac
  ask --header "@$folder/token.header" --output "$folder/model.safetensors" "$url/v1/models/$version"
  "$python" "$here/curl_train.py" "$folder" "$shard"
  receipt=$(ask --header "@$folder/token.header" --header "@$folder/update.header" --header "Upload-Offset: 0" \
    --header "Content-Type: application/octet-stream" --upload-file "$folder/update.safetensors" \
    "$url/v1/uploads/$number")
  echo "visit $number, version $version: $receipt"
done
