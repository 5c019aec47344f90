# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by vm.sh: a Debian kernel that has rxe, unpacked into the cache and never installed.
#
# It comes from the suite trixie-backports of the mirror that this machine's apt uses (on others than
# Debian: SWITCHBACK_VM_MIRROR names one), by an apt configuration of its own, so that apt checks it
# like any package. Which kernel is newest is asked once a day: older ones leave the mirrors. When that
# fails, the one in the cache is used.

cache=${SWITCHBACK_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/switchback-vm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

own_apt() {
	local tool=$1
	shift
	"$tool" -qq -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$cache/apt/lists" -o Dir::State::Status="$cache/apt/status" \
		-o Dir::Cache="$cache/apt/cache" -o APT::Architecture=amd64 -o APT::Architectures=amd64 \
		-o APT::Sandbox::User=root -o Acquire::Languages=none -o Debug::NoLocking=1 "$@"
}

mirror_of_machine() {
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Origin: Debian' 'Created-By: Packages' 2>/dev/null |
		awk '$2 !~ /security/ { print $1; exit }'
}

apt_prepare() {
	local mirror=${SWITCHBACK_VM_MIRROR:-$(mirror_of_machine)}
	[ -n "$mirror" ] || die "this machine's apt has no Debian mirror to fetch a kernel from: run 'apt-get update'" \
		"first, or set SWITCHBACK_VM_MIRROR to the address of a Debian mirror"
	[ -r "$keyring" ] || die "$keyring is missing: install the package debian-archive-keyring"
	mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
	: >"$cache/apt/status"
	{
		echo "deb [signed-by=$keyring] $mirror trixie-backports main"
		if [ -n "$kernel_wanted" ]; then
			echo "deb [signed-by=$keyring] $mirror trixie main"
		fi
	} >"$cache/apt/sources.list"
	own_apt apt-get update
}

# Name of the package that stands for the wanted kernel.
kernel_package() {
	local packages
	if [ -z "$kernel_wanted" ]; then
		echo linux-image-amd64
		return
	fi
	packages=$(own_apt apt-cache pkgnames linux-image- |
		grep -E "^linux-image-${kernel_wanted//[.+]/\\&}[0-9A-Za-z.+~-]*-amd64\$" |
		grep -v -E -- '-(cloud|rt)-' | sort -V | tail -n 1)
	[ -n "$packages" ] || die "--kernel $kernel_wanted: there is none in trixie or trixie-backports; there are:" \
		"$(own_apt apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9].*-amd64$' |
			grep -v -E -- '-(cloud|rt)-' | sed 's/^linux-image-//' | sort -V | paste -sd' ')"
	echo "$packages"
}

# The packages that hold the kernel and its modules: those it depends on that carry a kernel version in
# their name. It depends on tools to install it as well, which nobody needs here.
kernel_parts() {
	local next=$1 found='' depends
	while [ -n "$next" ]; do
		# shellcheck disable=SC2086 # a list
		depends=$(own_apt apt-cache depends --important $next |
			sed -n -E 's/^ *(Pre)?-?Depends: (linux-(image|binary|modules|base-modules)-[0-9][^ ]*)$/\2/p' | sort -u)
		[[ $next == linux-image-amd64 ]] || found+=" $next"
		next=$depends
	done
	tr ' ' '\n' <<<"$found" | sed '/^$/d' | sort -u
}

# A tiny file system of busybox and the modules that it takes to mount this machine's files.
initramfs_make() {
	local folder=$1 version=$2 root=$1/initramfs.d module file
	mkdir -p "$root"/{bin,dev,proc,sys,new,lib/modules}
	cp "$(command -v busybox)" "$root/bin/busybox"
	cp "$here/vm_init.sh" "$root/init"
	chmod 755 "$root/init"
	for module in virtio_pci 9pnet_virtio 9p overlay virtio_rng; do
		# What is not there is built in; the guest says what it misses.
		{ modprobe -d "$folder" -S "$version" --show-depends "$module" 2>/dev/null || true; } |
			sed -n 's/^insmod //p' |
			while read -r file _; do
				case $file in
				*.ko) cp -n "$file" "$root/lib/modules/" ;;
				*.ko.xz) xz -dc "$file" >"$root/lib/modules/$(basename "${file%.xz}")" ;;
				*.ko.zst) zstd -qdcf "$file" >"$root/lib/modules/$(basename "${file%.zst}")" ;;
				esac
				basename "$file" | sed 's/\.ko.*//'
			done
	done | awk '!seen[$0]++' >"$root/lib/modules/order"
	(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$folder/initramfs"
	rm -rf "$root"
}

kernel_unpack() {
	local part version image folder=$cache/new.$$
	rm -rf "$folder"
	mkdir -p "$folder/files"
	for part in "$@"; do
		dpkg-deb -x "$(echo "$cache/apt/cache/archives/${part}"_*.deb)" "$folder/files" ||
			die "cannot unpack $part"
	done
	mkdir -p "$folder/lib"
	if [ -d "$folder/files/usr/lib/modules" ]; then
		mv "$folder/files/usr/lib/modules" "$folder/lib/modules"
	else
		mv "$folder/files/lib/modules" "$folder/lib/modules"
	fi
	version=$(basename "$folder/lib/modules/"*)
	for image in "$folder/lib/modules/$version/vmlinuz" "$folder/files/boot/vmlinuz-$version"; do
		[ ! -f "$image" ] || cp "$image" "$folder/vmlinuz"
	done
	[ -f "$folder/vmlinuz" ] || die "no kernel image in $*"
	rm -rf "$folder/files"
	depmod -b "$folder" "$version" 2>/dev/null || die "depmod failed on the kernel $version"
	[ -n "$(find "$folder/lib/modules" -name 'rdma_rxe.ko*' -print -quit)" ] || die "the kernel $version has no rdma_rxe"
	initramfs_make "$folder" "$version"
	echo "$version" >"$folder/version"
	# All at once, so that nobody sees half of it.
	rm -rf "$cache/kernel-$version"
	mv "$folder" "$cache/kernel-$version"
	kernel=$cache/kernel-$version
}

kernel_fetch() {
	local package parts version
	apt_prepare || return 1
	package=$(kernel_package)
	parts=$(kernel_parts "$package")
	[ -n "$parts" ] || return 1
	version=$(sed -n 's/^linux-\(image\|binary\)-//p' <<<"$parts" | head -n 1)
	kernel=$cache/kernel-$version
	if [ -f "$kernel/version" ]; then
		return 0
	fi
	echo "== fetching the kernel $version" >&2
	# shellcheck disable=SC2086 # a list
	(cd "$cache/apt/cache/archives" && rm -f ./*.deb && own_apt apt-get download $parts >/dev/null) || return 1
	# shellcheck disable=SC2086
	kernel_unpack $parts
	rm -f "$cache/apt/cache/archives/"*.deb
}

# Sets `kernel` to the folder of an unpacked kernel.
kernel_get() {
	local stamp=$cache/newest${kernel_wanted:+-$kernel_wanted} lock
	mkdir -p "$cache" || die "cannot make the cache $cache"
	exec {lock}>"$cache/lock"
	flock "$lock"
	kernel=$(cat "$stamp" 2>/dev/null || true)
	if [ ! -f "$kernel/version" ] || [ -n "$(find "$stamp" -mmin +1440)" ]; then
		if kernel_fetch; then
			echo "$kernel" >"$stamp"
		elif [ -f "$kernel/version" ]; then
			echo "vm.sh: cannot ask for a newer kernel: using $(cat "$kernel/version")" >&2
		else
			die "cannot fetch a kernel (apt's reason is above)"
		fi
	fi
	if [ "$here/vm_init.sh" -nt "$kernel/initramfs" ]; then
		initramfs_make "$kernel" "$(cat "$kernel/version")"
	fi
	exec {lock}>&-
}
