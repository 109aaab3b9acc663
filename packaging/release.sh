#!/bin/sh
# Builds everything that a release consists of, from a tag: programs without libraries, Debian packages, OCI images, the
# wheel, a list of what they are made of (SBOM, CycloneDX), checksums.
#
#   packaging/release.sh v0.1.0
#
# Takes rustup, python3 with venv, dpkg-deb and buildah. Files go to target/static/.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
tag=${1:-}
[ "$tag" = "v$version" ] || fail "the tag is v$version: packaging/release.sh v$version"
[ "$(git describe --tags --exact-match --match "$tag" 2> /dev/null)" = "$tag" ] || fail "HEAD is not at $tag"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section $version"

rm -rf "$out"
PROFILE=dist packaging/profile.sh
PROFILE=dist packaging/static.sh
rm "$out"/runs-*.profdata
packaging/deb.sh
packaging/image.sh

python3 -m venv "$out/venv"
MATURIN_PEP517_ARGS="--locked --profile dist" "$out/venv/bin/pip" -q wheel --no-deps -w "$out" ./python
rm -rf "$out/venv"

command -v cargo-cyclonedx > /dev/null || cargo install cargo-cyclonedx --locked
cargo cyclonedx --format json --manifest-path crates/cli/Cargo.toml --override-filename bandmaster.cdx
mv crates/cli/bandmaster.cdx.json "$out/bandmaster-$version.cdx.json"
find . -name bandmaster.cdx.json -not -path "./target/*" -delete

(cd "$out" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
