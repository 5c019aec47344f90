# Sourced by the scripts that need packages: install_packages build|test|demo … installs what is missing.
# Works as root or with sudo, on Debian and Ubuntu; says what to install where it can do neither, or where
# SWITCHBACK_NO_INSTALL is set.

packages_build="build-essential cmake ninja-build pkg-config libibverbs-dev libnl-3-dev libnl-route-3-dev
	libexpat1-dev libisal-dev libjansson-dev libcmocka-dev"
packages_test="spin ibverbs-utils ibverbs-providers perftest ucx-utils jq clang-format clang-tidy cppcheck iproute2 iputils-ping"
packages_demo="gnuplot-nox iproute2 jq"
packages_vm="qemu-system-x86 busybox-static cpio kmod xz-utils zstd iproute2 ibverbs-utils ibverbs-providers
	debian-archive-keyring"

install_packages() {
	local wanted="" missing="" set name sudo=""
	for set; do
		name=packages_$set
		wanted+=" ${!name}"
	done
	for name in $wanted; do
		dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=" $name"
	done
	[ -n "$missing" ] || return 0
	if [ -n "${SWITCHBACK_NO_INSTALL:-}" ]; then
		echo "missing packages:$missing; nothing is installed, as asked" >&2
		exit 2
	fi
	if [ "$(id -u)" != 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "missing packages:$missing; install them as root" >&2
			exit 2
		fi
		sudo=sudo
	fi
	echo "== installing$missing"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
	# shellcheck disable=SC2086 # the list is meant to be split
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
