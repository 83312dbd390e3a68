#!/bin/busybox sh
# The guest's first process: modules, network, Soft-RoCE; then it runs what comes over the serial port `jobs`.
# A line "NAME LIMIT" means: run /share/NAME.sh for at most LIMIT seconds; its output goes to /share/NAME.out, its exit
# code to /share/NAME.code, and "NAME" comes back when it has ended. Several may run at once.
export PATH=/share/bin:/usr/bin:/usr/sbin:/bin:/sbin LD_LIBRARY_PATH=/share/lib
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
while read -r module; do insmod "/modules/$module" || echo "cannot load $module"; done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || echo "cannot mount /share"
ulimit -l unlimited

ip() { /usr/bin/ip "$@"; } # this shell would take BusyBox's own
setting() { sed -n "s/.*shotline\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
ip link set lo up
ip link set eth0 mtu "$(setting mtu)" up
for address in $(setting addresses | tr , ' '); do ip address add "$address" dev eth0 nodad; done
ip neighbour replace "$(setting peer)" lladdr "$(setting peer-mac)" dev eth0 # none to wait for
rdma link add rxe0 type rxe netdev eth0
gids=/sys/class/infiniband/rxe0/ports/1/gids
until [ "$(cat $gids/1 2>/dev/null | tr -d :0)" ]; do sleep 0.05; done

for port in /dev/vport*; do exec 3<>"$port"; done
echo ready >&3
while read -r name limit <&3; do
    [ "$name" = end ] && break
    (
        timeout "$limit" sh "/share/$name.sh" >"/share/$name.out" 2>&1 </dev/null 3>&-
        echo $? >"/share/$name.code"
        echo "$name" >&3
    ) &
done
sync
poweroff -f
