#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a QEMU guest on a Debian kernel that has Soft-RoCE (rxe), for machines whose own
# kernel has none. netns/README.md describes it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=netns/install.sh
. "$here/install.sh"
# shellcheck source=netns/vm_kernel.sh
. "$here/vm_kernel.sh"

usage() {
	cat <<-'END'
	usage: vm.sh [--kernel VERSION] [--memory MB] [--cpus N] [--timeout SECONDS] [--output DIR]
	             [--console FILE] [--] COMMAND [ARGUMENT…]
	       vm.sh --prepare
	The command runs as root in the guest, in this folder, with this environment; it sees this machine's
	files, and what it writes to them is lost with the guest, except under --output DIR. Its output and
	exit status are passed through; its input is empty.
	  --kernel VERSION   beginning of a kernel version, such as 6.12; the newest backport without it
	  --memory MB        default 2048
	  --cpus N           default: this machine's, at most 4
	  --timeout SECONDS  for the command, default 900; exit status 124 when it passes
	  --console FILE     the guest's console is kept there
	  --prepare          only fetches what is needed
	Exit status 125: no guest started, or two were lost; 123: the guest's kernel died while the command ran;
	2: usage or environment.
	END
}

die() {
	echo "vm.sh: $*" >&2
	exit 2
}

kernel_wanted='' memory=2048 cpus='' limit=900 output='' console='' prepare=no

boot_limit=${SWITCHBACK_VM_BOOT_LIMIT:-120} # seconds that a guest may take to the command, on a busy machine without KVM

number() { [[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || die "$1 '$2': a number is wanted"; }

arguments_parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--kernel | --memory | --cpus | --timeout | --output | --console)
			[ $# -ge 2 ] || die "$1 wants a value"
			case $1 in
			--kernel)
				[[ $2 =~ ^[0-9]+\.[0-9][0-9A-Za-z.+~-]*$ ]] ||
					die "--kernel '$2': a version such as 6.12 is wanted"
				kernel_wanted=$2
				;;
			--memory) number "$1" "$2" && memory=$2 ;;
			--cpus) number "$1" "$2" && cpus=$2 ;;
			--timeout) number "$1" "$2" && limit=$2 ;;
			--output) output=$2 ;;
			--console) console=$2 ;;
			esac
			shift 2
			;;
		--prepare)
			prepare=yes
			shift
			;;
		-h | --help)
			usage
			exit 0
			;;
		--)
			shift
			break
			;;
		-*) die "unknown argument '$1'" ;;
		*) break ;;
		esac
	done
	command=("$@")
	[ "$prepare" = yes ] || [ ${#command[@]} -gt 0 ] || {
		usage >&2
		exit 2
	}
	if [ -n "$output" ]; then
		mkdir -p "$output" || die "--output $output: cannot be made"
		output=$(realpath "$output")
	fi
	if [ -n "$console" ]; then
		: >"$console" || die "--console $console: cannot be written"
		console=$(realpath "$console")
	fi
	: "${cpus:=$(($(nproc) < 4 ? $(nproc) : 4))}"
}

# What the guest needs to know, as shell words: it reads the file with bash.
job_write() {
	{
		# Read-only variables of this shell are not the command's business.
		declare -px | grep -v -E '^declare -[a-z]*r'
		printf 'cd %q\n' "$PWD"
		printf 'job=('
		printf ' %q' "${command[@]}"
		printf ' )\n'
	} >"$work/share/job"
}

# Ends a guest whose command has not begun in time, or has taken longer than it may.
guest_watch() {
	local begin=$SECONDS nap
	exec {nap}<> <(:)
	until [ -f "$work/share/started" ] || [ $((SECONDS - begin)) -ge "$boot_limit" ]; do
		read -r -t 0.2 -u "$nap" || true
	done
	if [ -f "$work/share/started" ]; then
		read -r -t "$limit" -u "$nap" || true
		: >"$work/late"
	fi
	kill "$1" 2>/dev/null || true
	read -r -t 5 -u "$nap" || true
	kill -KILL "$1" 2>/dev/null || true
}

# Starts the guest and waits for its end; 0 when it ended by itself.
guest_run() {
	local -a accel=(-accel "tcg,thread=multi" -cpu "max,la57=off") extra=()
	if [ -w /dev/kvm ]; then
		accel=(-accel kvm -cpu host)
	fi
	if [ -n "$output" ]; then
		extra=(-virtfs "local,path=${output//,/,,},mount_tag=output,security_model=none")
		printf '%s\n' "$output" >"$work/share/output"
	fi
	# The serial lines are pipes to this shell's outputs: nothing is truncated, and no terminal is changed.
	mkfifo "$work/1" "$work/2"
	cat "$work/1" &
	local readers=$!
	cat "$work/2" >&2 &
	readers="$readers $!"
	exec 8>"$work/1" 9>"$work/2"
	local status=0
	# In the background and waited for, so that a signal ends the guest at once.
	qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -M q35 \
		"${accel[@]}" -smp "$cpus" -m "$memory" -kernel "$kernel/vmlinuz" -initrd "$kernel/initramfs" \
		-append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on" \
		-device virtio-rng-pci -monitor none -serial "file:$work/console" \
		-chardev "file,id=out,path=$work/1,append=on" -serial chardev:out \
		-chardev "file,id=err,path=$work/2,append=on" -serial chardev:err \
		-virtfs "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap" \
		-virtfs "local,path=$work/share,mount_tag=share,security_model=none" \
		"${extra[@]}" </dev/null >"$work/qemu" 2>&1 &
	guest=$!
	guest_watch "$guest" 8>&- 9>&- &
	watch=$!
	wait "$guest" || status=$?
	guest=''
	kill "$watch" 2>/dev/null || true
	wait "$watch" 2>/dev/null || true
	watch=''
	exec 8>&- 9>&-
	# shellcheck disable=SC2086 # two numbers
	wait $readers || true
	rm -f "$work/1" "$work/2"
	[ -z "$console" ] || cp "$work/console" "$console"
	return "$status"
}

clean_up() {
	local child
	for child in $watch $guest; do
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	done
	rm -rf "$work"
}

guest_failed() {
	echo "vm.sh: $1" >&2
	tail -n 15 "$work/qemu" "$work/console" 2>/dev/null >&2 || true
}

main() {
	local attempt status
	arguments_parse "$@"
	[ "$(uname -m)" = x86_64 ] || die "only x86_64 machines can run the guest"
	install_packages vm
	kernel_get
	[ "$prepare" = no ] || return 0
	guest='' watch=''
	work=$(mktemp -d "${TMPDIR:-/tmp}/switchback-vm.XXXXXX")
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	mkdir "$work/share"
	printf '%s\n' "$kernel" >"$work/share/kernel"
	job_write
	for attempt in 1 2; do
		status=0
		guest_run || status=$?
		if [ -f "$work/share/status" ]; then
			exit "$(cat "$work/share/status")"
		fi
		if [ -f "$work/late" ]; then
			guest_failed "the command ran longer than $limit seconds"
			exit 124
		fi
		if grep -qE 'Oops|BUG:|Call Trace|Kernel panic' "$work/console" && [ -f "$work/share/started" ]; then
			guest_failed "the guest's kernel died while the command ran"
			exit 123
		fi
		# Emulation loses a guest now and then, mostly in early boot: the kernel stumbles there, later it says nothing at all.
		guest_failed "the guest died $([ -f "$work/share/started" ] && echo "without a word while the command ran" ||
			echo "before the command began") (QEMU's status $status)$([ "$attempt" = 2 ] || echo ": once more")"
		rm -f "$work/share/started"
	done
	exit 125
}

main "$@"
