# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by rails.sh: faults, and what the rails look like.
#
# Packets are dropped, delayed and so on at a hook: a device in a namespace. With netem it is the
# sending side of a link, so that the packets meet it in the qdisc; with nftables it is the receiving
# side, since a drop on the way out is an error to the sender and not a loss.

# The far end of a host's rail as "NAMESPACE DEVICE": the switch's port, or the other host.
far_end() {
	if [ "$switch" = none ] && [ "$hosts" = 2 ]; then
		echo "$(host_ns $((1 - $1))) rail$2"
	else
		echo "$fab $(fab_port "$1" "$2")"
	fi
}

near_end() { echo "$(host_ns "$1") rail$2"; }

# hook HOST RAIL in|out
hook() {
	if [[ $netem-$3 == yes-out || $netem-$3 == no-in ]]; then
		near_end "$1" "$2"
	else
		far_end "$1" "$2"
	fi
}

# A chance as parts per million: "1%" or "0.01".
chance_parse() {
	local value=$2 ppm
	if [[ $value =~ ^[0-9]+(\.[0-9]+)?%$ ]]; then
		ppm=$(awk -v v="${value%\%}" 'BEGIN { printf "%d", v * 10000 + 0.5 }')
	elif [[ $value =~ ^[0-9]*\.?[0-9]+$ ]]; then
		ppm=$(awk -v v="$value" 'BEGIN { printf "%d", v * 1000000 + 0.5 }')
	else
		die "cut: $1=$value: a chance such as 1% or 0.01 is wanted"
	fi
	if [ "$ppm" -lt 1 ] || [ "$ppm" -gt 1000000 ]; then
		die "cut: $1=$value: a chance up to 100% is wanted"
	fi
	echo "$ppm"
}

# FAULT to "KEY VALUE", checked.
fault_parse() {
	local how=$1 value=${1#*=}
	case $how in
	down | port-down | blocked | no-address | no-device) echo "$how -" ;;
	blackhole) echo "loss 1000000" ;;
	duplicate | reorder | corrupt) echo "$how 100000" ;;
	loss=* | duplicate=* | reorder=* | corrupt=*)
		echo "${how%%=*} $(chance_parse "${how%%=*}" "$value")"
		;;
	delay=*)
		[[ $value =~ ^[0-9]+(us|ms|s)$ ]] || die "cut: delay=$value: a time such as 300us, 5ms or 1s is wanted"
		echo "delay $value"
		;;
	rate=*)
		[[ $value =~ ^[0-9]+(kbit|mbit|gbit)$ ]] || die "cut: rate=$value: a rate such as 100mbit is wanted"
		echo "rate $value"
		;;
	*) die "cut: --how '$how': down, port-down, blocked, no-address, no-device, blackhole, loss=P, delay=T," \
		"duplicate=P, reorder=P, corrupt=P or rate=R is wanted" ;;
	esac
}

percent() { awk -v ppm="$1" 'BEGIN { printf "%.4f%%", ppm / 10000 }'; }

# What the hook's faults are in netem's words. Everything is said each time: what is left out, an
# older change keeps.
netem_words() {
	local key value loss=0 duplicate=0 corrupt=0 reorder=0 delay=0us rate=0bit
	while read -r key value; do
		printf -v "$key" '%s' "$value"
	done
	if [ "$reorder" != 0 ] && [ "$delay" = 0us ]; then
		delay=1ms
	fi
	printf 'limit %s delay %s loss %s duplicate %s corrupt %s rate %s' "$netem_limit" "$delay" \
		"$(percent "$loss")" "$(percent "$duplicate")" "$(percent "$corrupt")" "$rate"
	if [ "$reorder" != 0 ]; then
		# netem delays all packets but these: the overtaken ones are the rest.
		printf ' reorder %s' "$(percent $((1000000 - reorder)))"
	fi
	echo
}

# The same as rules of an ingress chain.
nft_rules() {
	local device=$1 key value
	echo "table netdev switchback_$device {}"
	echo "delete table netdev switchback_$device"
	echo "table netdev switchback_$device {"
	echo "  chain ingress {"
	echo "    type filter hook ingress device \"$device\" priority 0; policy accept;"
	while read -r key value; do
		case $key in
		loss)
			if [ "$value" = 1000000 ]; then
				echo "    drop"
			else
				echo "    numgen random mod 1000000 < $value drop"
			fi
			;;
		rate) echo "    limit rate over $(rate_kbytes "$value") kbytes/second drop" ;;
		*) die "cut: this kernel has no netem (module sch_netem, CONFIG_NET_SCH_NETEM), and nftables" \
			"knows no $key" ;;
		esac
	done
	echo "  }"
	echo "}"
}

rate_kbytes() {
	local number=${1%?bit}
	case $1 in
	*kbit) echo $((number / 8 > 0 ? number / 8 : 1)) ;;
	*mbit) echo $((number * 125)) ;;
	*gbit) echo $((number * 125000)) ;;
	esac
}

# Work is collected per namespace and done by one process each.
declare -A ip_work bridge_work hook_work

ip_later() { ip_work[$1]+="$2"$'\n'; }
bridge_later() { bridge_work[$1]+="$2"$'\n'; }

# The hook's file of faults as it will be: written beside the old one until the kernel has taken it.
hook_later() {
	local file="$state/hook.$1.$2"
	[ -f "$file.new" ] || cp "$file" "$file.new" 2>/dev/null || : >"$file.new"
	[[ ${hook_work[$1]:-} == *" $2 "* ]] || hook_work[$1]+=" $2 "
}

hook_set() {
	local key=$3 value=$4 file="$state/hook.$1.$2.new"
	hook_later "$1" "$2"
	sed -i "/^$key /d" "$file"
	echo "$key $value" >>"$file"
}

hook_clear() {
	[ -s "$state/hook.$1.$2" ] || return 0
	hook_later "$1" "$2"
	: >"$state/hook.$1.$2.new"
}

hooks_apply() {
	local ns=$1 dev words=''
	for dev in ${hook_work[$ns]}; do
		if [ "$netem" = yes ]; then
			words+="qdisc change dev $dev root netem $(netem_words <"$state/hook.$ns.$dev.new")"
		else
			words+=$(nft_rules "$dev" <"$state/hook.$ns.$dev.new")
		fi
		words+=$'\n'
	done
	if [ "$netem" = yes ]; then
		tc -n "$ns" -batch - <<<"$words"
	else
		require_commands nft
		ip netns exec "$ns" nft -f - <<<"$words" ||
			die "cut: this kernel has neither netem nor nftables for network devices" \
				"(CONFIG_NET_SCH_NETEM, or CONFIG_NF_TABLES_NETDEV and CONFIG_NFT_NUMGEN)"
	fi
	for dev in ${hook_work[$ns]}; do
		mv "$state/hook.$ns.$dev.new" "$state/hook.$ns.$dev"
	done
}

# The switch first: a host's link comes up when both ends are.
work_do() {
	local ns
	# What the kernel refuses leaves no trace in the record.
	trap 'rm -f "$state"/hook.*.new' EXIT
	for ns in $(all_namespaces); do
		if [ -n "${hook_work[$ns]:-}" ]; then
			hooks_apply "$ns"
		fi
		if [ -n "${ip_work[$ns]:-}" ]; then
			ip -n "$ns" -batch - <<<"${ip_work[$ns]}"
		fi
	done
	for ns in "${!bridge_work[@]}"; do
		# A port that has just come up refuses, and forwards anyway.
		bridge -n "$ns" -force -batch - <<<"${bridge_work[$ns]}" 2>/dev/null || true
	done
	trap - EXIT
	ip_work=() bridge_work=() hook_work=()
}

# The RDMA device goes, its netdev stays.
device_remove() {
	[ ! -f "$state/no-device.$1.$2" ] || return 0
	case $device in
	rxe) rdma link del "$(device_name "$1" "$2")" ;;
	sim) "$(switchback_command)" fabric cut "$name" "host$1.rail$2" --how die ;;
	none) die "cut: no-device: these rails have no devices (up --device sim or rxe)" ;;
	esac
	: >"$state/no-device.$1.$2"
}

device_restore() {
	case $device in
	rxe) rxe_make_one "$1" "$2" ;;
	sim) "$(switchback_command)" fabric restore "$name" "host$1.rail$2" ;;
	esac
	rm "$state/no-device.$1.$2"
}

cut_port() {
	local host=$1 rail=$2 key=$3 value=$4 way=$5 far
	case $key in
	down) ip_later "$(host_ns "$host")" "link set rail$rail down" ;;
	port-down)
		[ "$switch" != none ] || die "cut: port-down: these rails have no switch (up --switch bridge)"
		ip_later "$fab" "link set $(fab_port "$host" "$rail") down"
		;;
	blocked)
		[ "$switch" = bridge ] || die "cut: blocked: only a bridge's ports can be (up --switch bridge)"
		require_commands bridge
		bridge_later "$fab" "link set dev $(fab_port "$host" "$rail") state 0"
		: >"$state/blocked.$host.$rail"
		;;
	no-address)
		[ ! -f "$state/no-address.$host.$rail" ] || return 0
		ip_later "$(host_ns "$host")" "addr del $(rail_address "$host" "$rail")/24 dev rail$rail"
		: >"$state/no-address.$host.$rail"
		;;
	no-device) device_remove "$host" "$rail" ;;
	*)
		if [ "$way" != in ]; then
			read -r -a far <<<"$(hook "$host" "$rail" out)"
			hook_set "${far[@]}" "$key" "$value"
		fi
		if [ "$way" != out ]; then
			read -r -a far <<<"$(hook "$host" "$rail" in)"
			hook_set "${far[@]}" "$key" "$value"
		fi
		;;
	esac
}

rails_cut() {
	local ports='' how=down way=both fault list host rail
	while [ $# -gt 0 ]; do
		case $1 in
		--how | --way)
			[ $# -ge 2 ] || die "cut: $1 wants a value"
			printf -v "${1#--}" '%s' "$2"
			shift 2
			;;
		-*) die "cut: unknown argument '$1'" ;;
		*)
			[ -z "$ports" ] || die "cut: too many arguments: '$1'"
			ports=$1
			shift
			;;
		esac
	done
	[ -n "$ports" ] || die "cut: PORTS is wanted"
	require_up
	case $way in
	both | in | out) ;;
	*) die "cut: --way '$way': both, in or out is wanted" ;;
	esac
	fault=$(fault_parse "$how")
	case $how-$way in
	down-both | port-down-both | blocked-both | no-address-both | no-device-both) ;;
	down-* | port-down-* | blocked-* | no-address-* | no-device-*) die "cut: $how is for both ways" ;;
	esac
	list=$(ports_parse "$ports")
	while read -r host rail; do
		# shellcheck disable=SC2086 # "KEY VALUE"
		cut_port "$host" "$rail" $fault "$way"
	done <<<"$list"
	work_do
}

restore_port() {
	local host=$1 rail=$2 near far
	read -r -a near <<<"$(near_end "$host" "$rail")"
	read -r -a far <<<"$(far_end "$host" "$rail")"
	hook_clear "${near[@]}"
	hook_clear "${far[@]}"
	ip_later "${near[0]}" "link set ${near[1]} up"
	if [ "$switch" != none ]; then
		ip_later "$fab" "link set ${far[1]} up"
	fi
	if [ "$switch" = router ]; then
		# The route went away with the link.
		ip_later "$fab" "route replace $(rail_address "$host" "$rail")/32 dev ${far[1]}"
	fi
	if [ -f "$state/no-address.$host.$rail" ]; then
		ip_later "${near[0]}" "addr add $(rail_address "$host" "$rail")/24 dev ${near[1]}"
		rm "$state/no-address.$host.$rail"
	fi
	if [ -f "$state/blocked.$host.$rail" ]; then
		bridge_later "$fab" "link set dev ${far[1]} state 3"
		rm "$state/blocked.$host.$rail"
	fi
}

rails_restore() {
	local list host rail
	require_up
	list=$(ports_parse "$1")
	while read -r host rail; do
		restore_port "$host" "$rail"
	done <<<"$list"
	work_do
	while read -r host rail; do
		[ ! -f "$state/no-device.$host.$rail" ] || device_restore "$host" "$rail"
	done <<<"$list"
}

hook_describe() {
	local file="$state/hook.$1.$2"
	[ -s "$file" ] || return 0
	awk -v way="$3" '{ value = $1 ~ /delay|rate/ ? $2 : $2 / 10000 "%"; print $1 "=" value, way }' "$file"
}

# status_port HOST RAIL LINKS ADDRESSES, the latter two as `ip -o` shows them for the whole host.
status_port() {
	local host=$1 rail=$2 link address faults ends way made=- words=()
	link=$(grep -E "^[0-9]+: rail$rail(@|:)" <<<"$3")
	address=$(awk -v dev="rail$rail" '$2 == dev { sub("/.*", "", $4); print $4; exit }' <<<"$4")
	case $link in
	*LOWER_UP*) link=up ;;
	*,UP,* | *,UP\>* | *\<UP,*) link=no-carrier ;;
	*) link=down ;;
	esac
	for way in in out; do
		read -r -a ends <<<"$(hook "$host" "$rail" "$way")"
		words+=("$(hook_describe "${ends[@]}" "$way")")
	done
	for way in blocked no-address no-device; do
		[ ! -f "$state/$way.$host.$rail" ] || words+=("$way")
	done
	faults=$(printf '%s\n' "${words[@]}" | sed '/^$/d' | paste -sd, | sed 's/,/, /g')
	case $device in
	rxe) made=$(device_name "$host" "$rail") ;;
	sim) made="sbr$rail" ;;
	esac
	printf '%-14s %-16s %-10s %-12s %s\n' "host$host.rail$rail" "${address:-none}" "$link" "$made" "${faults:--}"
}

rails_status() {
	local host rail links addresses
	require_up
	echo "rails '$name': $hosts hosts, $rails rails, $device devices, switch $switch, netem $netem"
	printf '%-14s %-16s %-10s %-12s %s\n' port address link device faults
	for ((host = 0; host < hosts; host++)); do
		links=$(ip -n "$(host_ns "$host")" -o link)
		addresses=$(ip -n "$(host_ns "$host")" -o -4 addr)
		for ((rail = 0; rail < rails; rail++)); do
			status_port "$host" "$rail" "$links" "$addresses"
		done
	done
}
