#!/bin/busybox sh
# The guest's first process: sets up modules, network and Soft-RoCE, then runs jobs from the serial port `jobs`.
# A line "NAME LIMIT" runs /share/NAME.sh for at most LIMIT seconds; its output goes to /share/NAME.out, its exit code to
# /share/NAME.code, and the line "NAME" is sent back when it has ended. Several jobs may run at once.
export PATH=/usr/bin:/usr/sbin:/bin:/sbin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
chmod go-w / /tmp # DPDK loads no driver from below a folder that others may write to
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
setting() { sed -n "s/.*shotline\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
for group in order $(setting modules | tr , ' '); do
    while read -r module; do insmod "/modules/$module" || echo "cannot load $module"; done <"/modules/$group"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || echo "cannot mount /share"
cp -r /share/bin /share/lib /tmp & # because /share is slow, and each start of a program reads it
copied=$!
ulimit -l unlimited

ip() { /usr/bin/ip "$@"; } # iproute2's; the shell would prefer BusyBox's applet
ip link set lo up
ip link set eth0 mtu "$(setting mtu)" up
for address in $(setting addresses | tr , ' '); do ip address add "$address" dev eth0 nodad 2>/dev/null; done
for peer in $(setting peers | tr , ' '); do
    ip neighbour replace "$peer" lladdr "$(setting peer-mac)" dev eth0 # no ARP
done
rdma link add rxe0 type rxe netdev eth0
gids=/sys/class/infiniband/rxe0/ports/1/gids
count=$(setting addresses | tr , '\n' | wc -l)
# The device has one GID more than addresses: its default GID.
until [ "$(cat $gids/? 2>/dev/null | tr -d :0 | grep -c .)" -gt "$count" ]; do sleep 0.05; done
wait $copied
export PATH=/tmp/bin:/share/bin:$PATH LD_LIBRARY_PATH=/tmp/lib:/share/lib

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
