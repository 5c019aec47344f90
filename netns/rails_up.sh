# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by rails.sh: making rails and clearing them away.
#
# `ip` and `tc` get their work in batches: one process per namespace, not per address (an `ip` takes
# half a second in an emulated guest).

count_check() {
	if ! [[ $2 =~ ^[0-9]{1,3}$ ]] || [ $((10#$2)) -lt "$3" ] || [ $((10#$2)) -gt "$4" ]; then
		die "up: $1 '$2': a number from $3 to $4 is wanted"
	fi
}

up_arguments() {
	hosts=2 rails=2 device=none switch=auto
	while [ $# -gt 0 ]; do
		case $1 in
		--hosts | --rails | --device | --switch)
			[ $# -ge 2 ] || die "up: $1 wants a value"
			printf -v "${1#--}" '%s' "$2"
			shift 2
			;;
		*) die "up: unknown argument '$1'" ;;
		esac
	done
	count_check --hosts "$hosts" 1 250
	count_check --rails "$rails" 1 64
	case $device in
	none | sim | rxe) ;;
	*) die "up: --device '$device': none, sim or rxe is wanted" ;;
	esac
	case $switch in
	auto | bridge | router) ;;
	none) [ "$hosts" -le 2 ] || die "up: --switch none: a cable has two ends, $hosts hosts need a switch" ;;
	*) die "up: --switch '$switch': auto, none, bridge or router is wanted" ;;
	esac
}

# Loads a module where that is possible; a kernel that has it built in needs nothing.
module_load() {
	if command -v modprobe >/dev/null; then
		modprobe -q "$1" 2>/dev/null || true
	fi
}

has_bridge() {
	module_load bridge
	ip netns exec "$fab" ip link add sbprobe type bridge 2>/dev/null || return 1
	ip netns exec "$fab" ip link del sbprobe
}

has_netem() {
	module_load sch_netem
	tc -n "$fab" qdisc add dev lo root netem limit 1 2>/dev/null || return 1
	tc -n "$fab" qdisc del dev lo root
}

switch_choose() {
	if [ "$switch" = auto ]; then
		if [ "$hosts" -le 2 ]; then
			switch=none
		elif has_bridge; then
			switch=bridge
		else
			switch=router
			echo "this kernel has no bridge: the rails' switches are routers"
		fi
	elif [ "$switch" = bridge ] && ! has_bridge; then
		die "up: --switch bridge: this kernel has no bridge (module bridge, CONFIG_BRIDGE)"
	fi
}

# Nothing here may touch a namespace that somebody else made.
names_check() {
	local ns
	for ns in $(all_namespaces); do
		if namespace_exists "$ns"; then
			die "a namespace '$ns' exists that these scripts did not make: choose another --name," \
				"or remove it with 'ip netns del $ns'"
		fi
	done
}

links_batch() {
	local host rail ns
	for ((host = 0; host < hosts; host++)); do
		ns=$(host_ns "$host")
		echo "link add manage mtu 1500 netns $ns type veth peer name $(fab_manage "$host") mtu 1500 netns $fab"
		for ((rail = 0; rail < rails; rail++)); do
			if [ "$switch" != none ] || [ "$hosts" = 1 ]; then
				echo "link add rail$rail mtu $rail_mtu netns $ns type veth" \
					"peer name $(fab_port "$host" "$rail") mtu $rail_mtu netns $fab"
			elif [ "$host" = 0 ]; then
				echo "link add rail$rail mtu $rail_mtu netns $ns type veth" \
					"peer name rail$rail mtu $rail_mtu netns $(host_ns 1)"
			fi
		done
	done
}

host_batch() {
	local host=$1 rail
	echo "link set lo up"
	echo "addr add $(manage_address "$host") peer $manage_gateway/32 dev manage"
	echo "link set manage up"
	echo "route add 198.19.0.0/24 via $manage_gateway"
	for ((rail = 0; rail < rails; rail++)); do
		echo "addr add $(rail_address "$host" "$rail")/24 dev rail$rail"
		echo "link set rail$rail up"
	done
}

fab_batch() {
	local host rail port
	echo "link set lo up"
	for ((rail = 0; rail < rails; rail++)); do
		if [ "$switch" = bridge ]; then
			echo "link add rail$rail type bridge"
			echo "link set rail$rail mtu $rail_mtu up"
		fi
	done
	for ((host = 0; host < hosts; host++)); do
		port=$(fab_manage "$host")
		echo "addr add $manage_gateway peer $(manage_address "$host")/32 dev $port"
		echo "link set $port up"
		for ((rail = 0; rail < rails; rail++)); do
			port=$(fab_port "$host" "$rail")
			case $switch in
			bridge) echo "link set $port master rail$rail up" ;;
			router)
				echo "link set $port up"
				echo "route add $(rail_address "$host" "$rail")/32 dev $port"
				;;
			none) [ "$hosts" -gt 1 ] || echo "link set $port up" ;;
			esac
		done
	done
}

# Forwarding between the ports; on a rail of a router, answers ARP for the other hosts.
fab_settings() {
	local host rail root=/proc/sys/net/ipv4
	echo "echo 1 >$root/ip_forward"
	if [ "$switch" = router ]; then
		for ((host = 0; host < hosts; host++)); do
			for ((rail = 0; rail < rails; rail++)); do
				echo "echo 1 >$root/conf/$(fab_port "$host" "$rail")/proxy_arp"
				echo "echo 0 >$root/neigh/$(fab_port "$host" "$rail")/proxy_delay"
			done
		done
	fi
}

# netem goes in now and is only changed later: adding it to a rail in use kills the QPs of rxe.
netem_batch() {
	local ns=$1 host rail
	for ((rail = 0; rail < rails; rail++)); do
		if [ "$ns" != "$fab" ]; then
			echo "qdisc add dev rail$rail root netem limit $netem_limit"
		elif [ "$switch" != none ]; then
			for ((host = 0; host < hosts; host++)); do
				echo "qdisc add dev $(fab_port "$host" "$rail") root netem limit $netem_limit"
			done
		fi
	done
}

links_make() {
	local ns host
	all_namespaces | sed 's/^/netns add /' | ip -batch - ||
		die "cannot make network namespaces: CAP_SYS_ADMIN and CONFIG_NET_NS are needed"
	switch_choose
	netem=no
	if has_netem; then
		netem=yes
	else
		echo "this kernel has no netem: loss and rate limits by nftables; no delay, duplicates or reordering"
	fi
	config_write no
	module_load veth
	links_batch | ip -batch - || die "cannot make veth links (module veth, CONFIG_VETH)"
	fab_batch | ip -n "$fab" -batch -
	fab_settings | ip netns exec "$fab" sh -e
	for ((host = 0; host < hosts; host++)); do
		host_batch "$host" | ip -n "$(host_ns "$host")" -batch -
	done
	if [ "$netem" = yes ]; then
		for ns in $(all_namespaces); do
			netem_batch "$ns" | tc -n "$ns" -batch -
		done
	fi
}

# Until `condition` holds, at most ten seconds.
wait_for() {
	local deadline=$((SECONDS + 10))
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.05
	done
}

link_ready() {
	ip -n "$(host_ns "$1")" -o link show dev "rail$2" | grep -q LOWER_UP
}

rxe_check() {
	require_commands rdma
	module_load ib_uverbs
	module_load rdma_rxe
	rdma dev >/dev/null 2>&1 ||
		die "up: --device rxe: this kernel has no RDMA (module ib_core); netns/vm.sh runs one that has"
	if rdma system | grep -q 'netns exclusive'; then
		die "up: --device rxe: RDMA is in exclusive mode; 'rdma system set netns shared' is needed before" \
			"there are namespaces"
	fi
}

rxe_gid_index() {
	local host=$1 rail=$2 ports index gid
	ports=/sys/class/infiniband/$(device_name "$host" "$rail")/ports/1
	printf -v gid '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' 198 18 "$rail" $((host + 1))
	for index in "$ports"/gids/*; do
		if [ "$(cat "$index" 2>/dev/null)" = "$gid" ]; then
			return 0
		fi
	done
	return 1
}

rxe_make_one() {
	local host=$1 rail=$2 made
	made=$(device_name "$host" "$rail")
	if ! ip netns exec "$(host_ns "$host")" rdma link add "$made" type rxe netdev "rail$rail"; then
		die "cannot make the rxe device $made (module rdma_rxe, and on kernels up to 6.12" \
			"crc32_generic); netns/vm.sh runs a kernel that has it"
	fi
	wait_for rxe_gid_index "$host" "$rail" ||
		die "the rxe device $made got no GID of $(rail_address "$host" "$rail")"
}

rxe_make() {
	local host rail
	for ((host = 0; host < hosts; host++)); do
		for ((rail = 0; rail < rails; rail++)); do
			rxe_make_one "$host" "$rail"
		done
	done
}

devices_make() {
	local command
	case $device in
	rxe)
		rxe_make
		;;
	sim)
		command=$(switchback_command)
		"$command" fabric create "$name" --hosts "$hosts" --rails "$rails" --netns >/dev/null
		;;
	esac
}

# What a process on a host needs to know.
environment_write() {
	local host rail hca command
	for ((host = 0; host < hosts; host++)); do
		{
			echo "NCCL_SOCKET_IFNAME==manage"
			echo "SWITCHBACK_NETNS=$(host_ns "$host")"
			case $device in
			rxe)
				# All namespaces see all devices: each takes its own.
				hca=''
				for ((rail = 0; rail < rails; rail++)); do
					hca+="${hca:+,}$(device_name "$host" "$rail"):1"
				done
				echo "NCCL_IB_HCA==$hca"
				;;
			sim)
				command=$(switchback_command)
				echo "SWITCHBACK_FABRIC=$name"
				echo "SWITCHBACK_HOST=$host"
				echo "LD_LIBRARY_PATH=$(dirname "$command")/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
				;;
			esac
		} >"$state/host$host.env"
	done
}

links_wait() {
	local host rail
	for ((host = 0; host < hosts; host++)); do
		for ((rail = 0; rail < rails; rail++)); do
			wait_for link_ready "$host" "$rail" || die "up: host$host.rail$rail got no carrier"
		done
	done
}

# Whether what is there is what is asked for, and whole.
up_already() {
	local ns
	local asked="$hosts $rails $device $switch"
	config_read || return 1
	[ "$complete" = yes ] && [[ "$asked" = "$hosts $rails $device $switch" || "$asked" = "$hosts $rails $device auto" ]] ||
		return 1
	for ns in $(all_namespaces); do
		namespace_exists "$ns" || return 1
	done
}

rails_up() {
	local wanted
	require_root
	up_arguments "$@"
	wanted=("$hosts" "$rails" "$device" "$switch")
	if up_already; then
		rails_restore all
		echo "rails '$name' are up already: $hosts hosts, $rails rails, $device devices, switch $switch"
		return
	fi
	if config_read; then
		[ "$complete" != yes ] || echo "rails '$name' were different or incomplete: making them anew"
		rails_down
	fi
	hosts=${wanted[0]} rails=${wanted[1]} device=${wanted[2]} switch=${wanted[3]} netem=no
	[ "$device" != rxe ] || rxe_check
	[ "$device" != sim ] || switchback_command >/dev/null
	names_check
	config_write no
	trap 'rails_down' EXIT
	links_make
	links_wait
	devices_make
	environment_write
	config_write yes
	trap - EXIT
	echo "rails '$name': $hosts hosts, $rails rails, $device devices, switch $switch"
}

rails_down() {
	local ns host rail command
	require_root
	if ! config_read; then
		echo "no rails named '$name'"
		return
	fi
	if [ "$device" = rxe ] && command -v rdma >/dev/null; then
		for ((host = 0; host < hosts; host++)); do
			for ((rail = 0; rail < rails; rail++)); do
				rdma link del "$(device_name "$host" "$rail")" 2>/dev/null || true
			done
		done
	fi
	if [ "$device" = sim ]; then
		command=$(switchback_command)
		"$command" fabric destroy "$name" 2>/dev/null || true
	fi
	for ns in $(all_namespaces); do
		if namespace_exists "$ns"; then
			ip netns del "$ns"
		fi
	done
	rm -rf "$state"
	echo "rails '$name' are gone"
}
