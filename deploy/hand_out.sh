#!/bin/sh
# Put into a folder what clients need to enrol: hand_out.sh SERVER FOLDER CLIENTS
set -eu
# An empty file is left of a kill.
[ -s "$2/enrolment-token" ] || {
    rm -f "$2/enrolment-token"
    offbeat server tokens make "$1" enrolment --uses "$3" --name hand-out --output "$2/enrolment-token"
}
cp "$1/tls/ca.pem" "$2/ca.pem"
