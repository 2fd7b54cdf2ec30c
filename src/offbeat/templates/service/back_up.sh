#!/bin/sh
# Back a server's folder up and keep the newest copies only: back_up.sh SERVER BACKUPS NUMBER
#
# A copy gets its name once it is complete. Old copies are deleted only after that.
set -eu
umask 077
name=$(date -u +%Y-%m-%dT%H%M%S.%NZ)
rm -rf "$2/unfinished"
offbeat server backup "$1" "$2/unfinished" >/dev/null
sync -f "$2"
mv "$2/unfinished" "$2/$name"
echo "$2/$name"
find "$2" -mindepth 1 -maxdepth 1 -type d -name '????-??-??T*Z' | sort -r | tail -n "+$(($3 + 1))" |
  while read -r old; do rm -rf "$old"; done
