// A bare UDP ping-pong of 64 bytes over ::1: the time of a round trip without any processing.
//
//   udp_pingpong serve PORT CPU poll|sleep         answers until it is killed
//   udp_pingpong ping PORT CPU poll|sleep COUNT    prints one JSON line
//
// poll: both busy-poll the socket. sleep: both block in recvfrom. The server answers any sender; the client's
// socket is connected.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MESSAGE = 64, WARM_UP = 20 };

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        die("sched_setaffinity");
}

static void receive(int fd, char *message, struct sockaddr_in6 *from, int flags) {
    for (;;) {
        socklen_t length = sizeof *from;
        if (recvfrom(fd, message, MESSAGE, flags, (struct sockaddr *)from, from ? &length : NULL) == MESSAGE)
            return;
        if (errno != EAGAIN && errno != EINTR)
            die("recvfrom");
    }
}

static void serve(int fd, const struct sockaddr_in6 *address, int flags) {
    if (bind(fd, (const struct sockaddr *)address, sizeof *address))
        die("bind");
    for (;;) {
        char message[MESSAGE];
        struct sockaddr_in6 from;
        receive(fd, message, &from, flags);
        if (sendto(fd, message, MESSAGE, 0, (struct sockaddr *)&from, sizeof from) != MESSAGE)
            die("sendto");
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void ping(int fd, const struct sockaddr_in6 *address, int flags, size_t count) {
    uint64_t *times = calloc(count, sizeof *times);
    if (!times || !count)
        die("calloc");
    if (connect(fd, (const struct sockaddr *)address, sizeof *address))
        die("connect");
    for (size_t round = 0; round < count + WARM_UP; round++) {
        char message[MESSAGE] = {0};
        uint64_t begun = now_ns();
        if (send(fd, message, MESSAGE, 0) != MESSAGE)
            die("send");
        receive(fd, message, NULL, flags);
        if (round >= WARM_UP)
            times[round - WARM_UP] = now_ns() - begun;
    }
    qsort(times, count, sizeof *times, by_value);
    printf("{\"count\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f}\n", count, times[count / 2] / 1e3,
           times[(size_t)(count * 0.99)] / 1e3, times[count - 1] / 1e3);
    free(times);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "udp_pingpong serve PORT CPU poll|sleep\nudp_pingpong ping PORT CPU poll|sleep COUNT\n");
        return 2;
    }
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[2])), .sin6_addr = in6addr_loopback};
    int flags = strcmp(argv[4], "poll") ? 0 : MSG_DONTWAIT;
    pin(atoi(argv[3]));
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    if (fd < 0)
        die("socket");
    if (!strcmp(argv[1], "serve"))
        serve(fd, &address, flags);
    else
        ping(fd, &address, flags, argc > 5 ? strtoul(argv[5], NULL, 10) : 2000);
    return 0;
}
