/*
 * Writes 64 KiB at a time into the memory of a target, in groups of 16 with one completion, and prints the rate as JSON.
 *
 * Arguments: address of the target, token, seconds, processor.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 65536, GROUP = 16 };

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Posts a group, and waits for the completion of its last request. */
static void write_group(shotline_qp qp, shotline_cq cq, const shotline_send_wr *group)
{
    shotline_completion completion;
    size_t count = 0;
    check(shotline_qp_post_send(qp, group, GROUP, NULL));
    while (count == 0)
        check(shotline_cq_poll(cq, &completion, 1, &count));
    if (completion.status != SHOTLINE_WC_SUCCESS) {
        fprintf(stderr, "%s\n", shotline_wc_status_meaning(completion.status));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(atoi(argv[4]), &processors);
    sched_setaffinity(0, sizeof processors, &processors);
    shotline_endpoint endpoint;
    shotline_remote_region remote;
    shotline_memory memory;
    shotline_region region;
    shotline_region_info local;
    shotline_cq cq;
    shotline_qp qp;
    void *bytes;
    check(shotline_endpoint_connect(argv[1], argv[2], NULL, NULL, &endpoint));
    check(shotline_endpoint_find_region(endpoint, "a", &remote));
    check(shotline_memory_allocate(SIZE, NULL, &memory, &bytes));
    memset(bytes, 42, SIZE);
    check(shotline_endpoint_register(endpoint, memory, NULL, &region, &local));
    check(shotline_cq_create(endpoint, 2 * GROUP, &cq));
    check(shotline_qp_create(endpoint, cq, cq, NULL, &qp));
    shotline_send_wr group[GROUP];
    shotline_sge part = {local.address, SIZE, local.lkey};
    memset(group, 0, sizeof group);
    for (int at = 0; at < GROUP; at++) {
        group[at].operation = SHOTLINE_WRITE;
        group[at].flags = at + 1 < GROUP ? SHOTLINE_WR_UNSIGNALLED : 0;
        group[at].sges = &part;
        group[at].length = 1;
        group[at].remote_address = remote.address;
        group[at].rkey = remote.rkey;
    }
    write_group(qp, cq, group);
    const double began = now(), end = began + atof(argv[3]);
    unsigned long groups = 0;
    double last = began;
    for (; last < end; last = now(), groups++)
        write_group(qp, cq, group);
    printf("{\"gbps\": %.6f}\n", (double)groups * GROUP * SIZE * 8 / (last - began) / 1e9);
    check(shotline_endpoint_close(endpoint));
    return 0;
}
