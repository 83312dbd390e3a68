/*
 * Writes to the memory of a target, reads it back, and counts in it.
 *
 *     cc -o read_write read_write.c $(pkg-config --cflags --libs shotline)
 *     ./read_write 127.0.0.1:45871 TOKEN        as serve_memory, or `shotline target`, prints them
 *
 * Valid as C11 and as C++17.
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 4096, PARTS = 16, COUNTER = PART * PARTS };

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

/* Waits for the completion of a request. */
static void wait_for(shotline_cq cq, uint64_t id)
{
    shotline_completion completion;
    size_t count;
    check(shotline_cq_wait(cq, SHOTLINE_FOREVER, &completion, 1, &count));
    if (completion.status != SHOTLINE_WC_SUCCESS || completion.id != id) {
        fprintf(stderr, "request %" PRIu64 ": %s: %s\n", completion.id, shotline_wc_status_name(completion.status),
                shotline_wc_status_meaning(completion.status));
        exit(1);
    }
}

/* Writes all parts with one doorbell. Requests are executed in order: the completion of the last one is that of all. */
static void write_parts(shotline_qp qp, const shotline_region_info *local, const shotline_remote_region *remote)
{
    shotline_sge parts[PARTS];
    shotline_send_wr requests[PARTS];
    memset(requests, 0, sizeof requests);
    for (uint32_t at = 0; at < PARTS; at++) {
        parts[at].address = local->address + at * PART;
        parts[at].length = PART;
        parts[at].lkey = local->lkey;
        requests[at].id = at;
        requests[at].operation = SHOTLINE_WRITE;
        requests[at].flags = at + 1 < PARTS ? SHOTLINE_WR_UNSIGNALLED : 0;
        requests[at].sges = &parts[at];
        requests[at].length = 1;
        requests[at].remote_address = remote->address + at * PART;
        requests[at].rkey = remote->rkey;
    }
    check(shotline_qp_post_send(qp, requests, PARTS, NULL));
}

/* Posts a READ of all parts into the second half of the memory, or an addition of 1 with the original value at its end. */
static void post(shotline_qp qp, uint32_t operation, const shotline_region_info *local,
                 const shotline_remote_region *remote)
{
    const int is_read = operation == SHOTLINE_READ;
    shotline_send_wr request = SHOTLINE_ZERO;
    shotline_sge to;
    to.address = local->address + (is_read ? COUNTER : 2 * COUNTER);
    to.length = is_read ? COUNTER : 8;
    to.lkey = local->lkey;
    request.id = operation;
    request.operation = operation;
    request.sges = &to;
    request.length = 1;
    request.remote_address = remote->address + (is_read ? 0 : COUNTER);
    request.rkey = remote->rkey;
    request.compare_add = 1;
    check(shotline_qp_post_send(qp, &request, 1, NULL));
    /* `to` has been copied; the memory belongs to the library until the completion. */
}

int main(int argc, char **argv)
{
    shotline_endpoint endpoint;
    shotline_remote_region remote;
    shotline_memory memory;
    shotline_region region;
    shotline_region_info local;
    shotline_cq cq;
    shotline_qp qp;
    void *bytes;
    uint64_t before;
    if (argc != 3) {
        fprintf(stderr, "usage: read_write ADDRESS TOKEN\n");
        return 2;
    }
    check(shotline_endpoint_connect(argv[1], argv[2], NULL, NULL, &endpoint));
    check(shotline_endpoint_find_region(endpoint, "data", &remote));
    check(shotline_memory_allocate(2 * COUNTER + 8, NULL, &memory, &bytes));
    check(shotline_endpoint_register(endpoint, memory, NULL, &region, &local));
    check(shotline_cq_create(endpoint, PARTS, &cq));
    check(shotline_qp_create(endpoint, cq, cq, NULL, &qp));

    memset(bytes, 42, COUNTER);
    write_parts(qp, &local, &remote);
    wait_for(cq, PARTS - 1);
    post(qp, SHOTLINE_READ, &local, &remote);
    wait_for(cq, SHOTLINE_READ);
    printf("%d bytes written and read back: %s\n", COUNTER,
           memcmp(bytes, (char *)bytes + COUNTER, COUNTER) ? "they differ" : "they are equal");
    post(qp, SHOTLINE_FETCH_ADD, &local, &remote);
    wait_for(cq, SHOTLINE_FETCH_ADD);
    memcpy(&before, (char *)bytes + 2 * COUNTER, sizeof before);
    printf("initiators before this one: %" PRIu64 "\n", before);

    check(shotline_qp_close(qp));
    check(shotline_cq_close(cq));
    check(shotline_region_close(region));
    check(shotline_endpoint_close(endpoint));
    check(shotline_memory_free(memory));
    return 0;
}
