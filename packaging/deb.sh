#!/bin/sh
# Packs a static bandmaster as a Debian package: program, units, user, man pages, completions, licences.
#
#   packaging/deb.sh [x86_64] [aarch64]           both when none is named; `packaging/static.sh` makes the programs first
#
# Takes dpkg-deb. Packages go to target/static/. The package enables and starts nothing: a daemon needs its file first.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
own=$out/bandmaster-$(uname -m)
[ -x "$own" ] || fail "no $own, which writes man pages and completions: run packaging/static.sh $(uname -m)"

for machine in ${*:-x86_64 aarch64}; do
    need_program "$machine"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    chmod 755 "$root"
    install -D -m 755 "$out/bandmaster-$machine" "$root/usr/bin/bandmaster"
    for unit in packaging/*.service; do
        install -D -m 644 "$unit" "$root/usr/lib/systemd/system/${unit##*/}"
    done
    install -D -m 644 packaging/bandmaster.sysusers.conf "$root/usr/lib/sysusers.d/bandmaster.conf"
    install -d -m 755 "$root/etc/bandmaster"
    documents=$root/usr/share/doc/bandmaster
    install -d "$documents" "$root/usr/share/man/man1"
    "$own" man --dir "$root/usr/share/man/man1" > /dev/null
    gzip -9n "$root"/usr/share/man/man1/*
    for shell in bash/bandmaster zsh/_bandmaster fish/bandmaster.fish; do
        case $shell in
        bash/*) folder=usr/share/bash-completion/completions ;;
        zsh/*) folder=usr/share/zsh/vendor-completions ;;
        fish/*) folder=usr/share/fish/vendor_completions.d ;;
        esac
        install -d "$root/$folder"
        "$own" completions "${shell%%/*}" > "$root/$folder/${shell##*/}"
    done
    install -m 644 README.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$documents"
    gzip -9nc CHANGELOG.md > "$documents/changelog.gz"
    cat > "$documents/copyright" <<'FILE'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bandmaster
Source: https://github.com/bandmaster/bandmaster

Files: *
Copyright: the bandmaster developers
License: MIT or Apache-2.0
 The texts are next to this file: LICENSE-MIT and LICENSE-APACHE.
FILE
    install -d "$root/DEBIAN"
    cat > "$root/DEBIAN/control" <<FILE
Package: bandmaster
Version: $version
Architecture: $architecture
Maintainer: The bandmaster developers <bandmaster@users.noreply.github.com>
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Recommends: iproute2, nftables
Suggests: ethtool, iperf3
Homepage: https://github.com/bandmaster/bandmaster
Description: simulate, emulate and deploy network-assisted bandwidth control
 A packet-level simulator, a lab of network namespaces with Linux TCP, and
 daemons: a priority gateway, a controller with host agents, a switch
 function. They share one implementation of each scheme.
FILE
    cat > "$root/DEBIAN/postinst" <<'FILE'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if command -v systemd-sysusers > /dev/null; then
        systemd-sysusers bandmaster.conf
    elif ! getent passwd bandmaster > /dev/null; then
        useradd --system --user-group --no-create-home --home-dir /var/lib/bandmaster --shell /usr/sbin/nologin bandmaster
    fi
    # Keys are there.
    chown root:bandmaster /etc/bandmaster
    chmod 750 /etc/bandmaster
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
FILE
    # What a daemon changed is undone when it stops.
    cat > "$root/DEBIAN/prerm" <<'FILE'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now 'bandmaster-*.service' || true
fi
FILE
    cat > "$root/DEBIAN/postrm" <<'FILE'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then rm -rf /var/lib/bandmaster /etc/bandmaster; fi
FILE
    chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/bandmaster_${version}_$architecture.deb"
    rm -rf "$root"
done
