// A bare UDP loop with segmentation (GSO) on the sender and aggregation (GRO) on the receiver: the throughput
// of the kernel's sockets without checks or assembly. Packets have the size of Shotline's RoCEv2 packets: a
// 24-byte header, 4096 bytes of payload, a 4-byte trailer. Payloads are read from and written to pools much
// larger than the caches, as with real shots.
//
//   socket_loop recv PORT CPU POOL_MIB               prints "ready", later one JSON line
//   socket_loop send PORT CPU POOL_MIB SECONDS GBPS  GBPS 0: as fast as possible; prints one JSON line
//
// Both ends use ::1. Losses are exact: the sender's last message is the number of packets that it sent.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    HEADER = 24,
    PAYLOAD = 4096,
    TRAILER = 4,
    PACKET = HEADER + PAYLOAD + TRAILER,
    BATCH = 15,   // packets per 64 KiB datagram before segmentation
    MESSAGES = 8, // such batches per system call
    PIECES = 3,   // header, payload, trailer
    HUGE_PAGE = 2 << 20,
    SOCKET_BUFFER = 256 << 20,
};

struct ring {
    char *pool;
    size_t slots, next;
    char headers[MESSAGES][BATCH][HEADER + TRAILER];
    struct iovec pieces[MESSAGES][BATCH * PIECES];
    struct mmsghdr messages[MESSAGES];
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec * 1e-6; }

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("sched_setaffinity");
}

// Allocates a pool and writes to it, so that page faults are not part of the measurement.
static struct ring *make_ring(size_t pool_mib) {
    size_t bytes = pool_mib << 20;
    char *map = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ring *r = calloc(1, sizeof *r);
    if (map == MAP_FAILED || !r) die("memory");
    r->pool = (char *)(((uintptr_t)map + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    r->slots = bytes / PAYLOAD;
    madvise(r->pool, bytes, MADV_HUGEPAGE);
    memset(r->pool, 7, bytes);
    return r;
}

// Points the buffers of every message to the pool's next slots.
static void assign_slots(struct ring *r) {
    for (int i = 0; i < MESSAGES; i++) {
        struct iovec *piece = r->pieces[i];
        for (int k = 0; k < BATCH; k++) {
            char *header = r->headers[i][k];
            *piece++ = (struct iovec){header, HEADER};
            *piece++ = (struct iovec){r->pool + r->next * PAYLOAD, PAYLOAD};
            *piece++ = (struct iovec){header + HEADER, TRAILER};
            r->next = (r->next + 1) % r->slots;
        }
        r->messages[i].msg_hdr = (struct msghdr){.msg_iov = r->pieces[i], .msg_iovlen = BATCH * PIECES};
    }
}

static int udp_socket(int force, int plain) {
    int s = socket(AF_INET6, SOCK_DGRAM, 0), bytes = SOCKET_BUFFER;
    if (s < 0) die("socket");
    if (setsockopt(s, SOL_SOCKET, force, &bytes, sizeof bytes)) setsockopt(s, SOL_SOCKET, plain, &bytes, sizeof bytes);
    return s;
}

static void report(const char *role, uint64_t packets, int64_t lost, double elapsed, const struct rusage *from) {
    struct rusage to;
    getrusage(RUSAGE_SELF, &to);
    printf("{\"role\": \"%s\", \"gbps\": %.3f, \"packets\": %lu, \"lost\": %ld, \"seconds\": %.3f, "
           "\"cpu_user_s\": %.3f, \"cpu_sys_s\": %.3f}\n",
           role, packets * PAYLOAD * 8e-9 / elapsed, (unsigned long)packets, (long)lost, elapsed,
           seconds(to.ru_utime) - seconds(from->ru_utime), seconds(to.ru_stime) - seconds(from->ru_stime));
}

static void run_sender(struct sockaddr_in6 to, struct ring *r, double limit, double gbps) {
    int s = udp_socket(SO_SNDBUFFORCE, SO_SNDBUF), segment = PACKET;
    if (connect(s, (void *)&to, sizeof to)) die("connect");
    if (setsockopt(s, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment)) die("UDP_SEGMENT");

    struct rusage from;
    getrusage(RUSAGE_SELF, &from);
    uint64_t sent = 0;
    double start = now(), elapsed;
    do {
        assign_slots(r);
        for (int i = 0; i < MESSAGES; i++)
            for (int k = 0; k < BATCH; k++) {
                uint64_t number = sent + i * BATCH + k;
                memcpy(r->headers[i][k], &number, sizeof number);
            }
        for (int done = 0; done < MESSAGES;) {
            int n = sendmmsg(s, r->messages + done, MESSAGES - done, 0);
            if (n < 0) die("sendmmsg");
            done += n;
        }
        sent += MESSAGES * BATCH;
        double deadline = gbps > 0 ? sent * PAYLOAD * 8e-9 / gbps : 0;
        while ((elapsed = now() - start) < deadline) {}
    } while (elapsed < limit);
    report("send", sent, 0, elapsed, &from);

    // The last message is shorter than any packet; it is repeated, after the receiver's queue has drained.
    segment = 0;
    setsockopt(s, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
    for (int i = 0; i < 10; i++) {
        usleep(100000);
        send(s, &sent, sizeof sent, 0);
    }
}

static void run_receiver(struct sockaddr_in6 at, struct ring *r) {
    int s = udp_socket(SO_RCVBUFFORCE, SO_RCVBUF), one = 1;
    struct timeval timeout = {.tv_sec = 10};
    if (setsockopt(s, SOL_UDP, UDP_GRO, &one, sizeof one)) die("UDP_GRO");
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (bind(s, (void *)&at, sizeof at)) die("bind");
    puts("ready");
    fflush(stdout);

    struct rusage from = {0};
    uint64_t received = 0, sent = 0;
    double first = 0, last = 0;
    while (!sent) {
        assign_slots(r);
        int n = recvmmsg(s, r->messages, MESSAGES, MSG_WAITFORONE, NULL);
        if (n < 0) die("recvmmsg");
        if (!received) { // the clock starts with the first batch
            first = now();
            getrusage(RUSAGE_SELF, &from);
        }
        for (int i = 0; i < n; i++) {
            unsigned bytes = r->messages[i].msg_len;
            if (bytes >= PACKET)
                received += bytes / PACKET;
            else
                memcpy(&sent, r->headers[i][0], sizeof sent);
        }
        if (!sent) last = now();
    }
    report("recv", received, (int64_t)(sent - received), last - first, &from);
}

int main(int argc, char **argv) {
    int sends = argc == 7 && !strcmp(argv[1], "send");
    if (!sends && !(argc == 5 && !strcmp(argv[1], "recv"))) {
        fprintf(stderr, "usage: socket_loop recv PORT CPU POOL_MIB | send PORT CPU POOL_MIB SECONDS GBPS\n");
        return 2;
    }
    struct sockaddr_in6 loopback = {
        .sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[2])), .sin6_addr = in6addr_loopback};
    pin(atoi(argv[3]));
    struct ring *r = make_ring(atol(argv[4]));
    if (sends)
        run_sender(loopback, r, atof(argv[5]), atof(argv[6]));
    else
        run_receiver(loopback, r);
    return 0;
}
