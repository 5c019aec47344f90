#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# First process of the guest: mounts the machine's files, runs the job, hands its exit status back.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
	insmod "/lib/modules/$module.ko"
done </lib/modules/order

fail() {
	echo "vm_init: $*" >/dev/ttyS0
	poweroff -f
}

p9() { mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2" || fail "cannot mount $1"; }

mkdir -p /layers
mount -t tmpfs tmpfs /layers
mkdir -p /layers/lower /layers/upper /layers/work /layers/share
p9 root /layers/lower ro,cache=loose
p9 share /layers/share rw
mount -t overlay -o lowerdir=/layers/lower,upperdir=/layers/upper,workdir=/layers/work root /new ||
	fail "cannot mount the root"

kernel=$(cat /layers/share/kernel)
mkdir -p /new/run /new/dev /new/proc /new/sys /new/usr/lib/modules /new/tmp
mount -t tmpfs tmpfs /new/run
mount --move /dev /new/dev
mount --move /proc /new/proc
mount --move /sys /new/sys
ln -s /proc/self/fd /new/dev/fd
ln -s /proc/self/fd/0 /new/dev/stdin
ln -s /proc/self/fd/1 /new/dev/stdout
ln -s /proc/self/fd/2 /new/dev/stderr
mkdir -p /new/dev/pts /new/dev/shm /new/run/job "/new/lib/modules/$(uname -r)"
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount --bind /layers/share /new/run/job
mount --bind "/layers/lower$kernel/lib/modules/$(uname -r)" "/new/lib/modules/$(uname -r)"
if [ -f /layers/share/output ]; then
	output=$(cat /layers/share/output)
	p9 output "/new$output" rw
fi

cat >/new/run/runner <<'END'
hostname guest 2>/dev/null
ip link set lo up
for module in ib_uverbs rdma_ucm rdma_rxe veth bridge sch_netem; do
	modprobe -q "$module"
done
modprobe -q crc32_generic
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
mkfifo /run/1 /run/2
cat </run/1 >/dev/ttyS1 &
readers=$!
cat </run/2 >/dev/ttyS2 &
readers="$readers $!"
: >/run/job/started
(. /run/job/job && exec "${job[@]}") </dev/null >/run/1 2>/run/2
status=$?
# What the job left running keeps the pipes open: not for long.
for i in 1 2 3 4 5 6 7 8 9 10; do
	kill -0 $readers 2>/dev/null || break
	sleep 0.1
done
echo "$status" >/run/job/status.new
mv /run/job/status.new /run/job/status
sync -f /run/job/status
END
chroot /new /bin/bash /run/runner
# The serial lines send at once; what their buffers hold goes out while the devices are shut down.
sync
poweroff -f
