#!/bin/sh
# Packs a static bandmaster as an OCI image that has nothing else, by buildah.
#
#   packaging/image.sh [x86_64] [aarch64]         both when none is named; `packaging/static.sh` makes the programs first
#
# Archives go to target/static/. `podman load -i FILE`, then `podman run --rm bandmaster reproduce bas --quick --no-report`.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
command -v buildah > /dev/null || fail "no buildah (Debian: buildah)"

for machine in ${*:-x86_64 aarch64}; do
    need_program "$machine"
    archive=$out/bandmaster-$version-$architecture.oci.tar
    container=$(buildah from --arch "$architecture" scratch)
    buildah copy -q --chmod 755 "$container" "$out/bandmaster-$machine" /bandmaster > /dev/null
    # Programs keep results in the folder that is mounted here.
    buildah config --arch "$architecture" --entrypoint '["/bandmaster"]' --workingdir /results \
        --label org.opencontainers.image.title=bandmaster \
        --label org.opencontainers.image.version="$version" \
        --label org.opencontainers.image.licenses="MIT OR Apache-2.0" \
        --label org.opencontainers.image.source=https://github.com/bandmaster/bandmaster "$container"
    rm -f "$archive"
    buildah commit -q --rm --timestamp 0 "$container" "oci-archive:$archive:bandmaster:$version" > /dev/null
    echo "$archive"
done
