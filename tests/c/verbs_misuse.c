/*
 * Calls endpoints, memory, queues and targets with every wrong argument, from several threads, and after a fork. Each call has
 * a defined outcome.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#endif

#include "check.h"

#include <inttypes.h>
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 1 << 16, WAITERS = 3 };

static shotline_memory memory, served_memory;
static char *bytes, *served;
static shotline_target target;
static char address[64], token[64];
static shotline_endpoint endpoint;
static shotline_remote_region remote;
static shotline_region region;
static shotline_region_info local;
static shotline_cq cq;
static shotline_qp qp;

static shotline_target serve(void)
{
    shotline_served_region data;
    shotline_target_options options = SHOTLINE_ZERO;
    shotline_target one;
    data.name = "data";
    data.rights = "atomic";
    data.memory = served_memory;
    options.strict_ib = 1;
    SUCCEEDS(shotline_target_serve(&data, 1, &options, &one));
    SUCCEEDS(shotline_target_get_text(one, "address", address, sizeof address, NULL));
    SUCCEEDS(shotline_target_get_text(one, "token", token, sizeof token, NULL));
    return one;
}

static void check_memory(void)
{
    shotline_memory none;
    void *at;
    FAILS(INVALID_ARGUMENT, "`memory`", shotline_memory_allocate(8, NULL, NULL, &at));
    FAILS(INVALID_ARGUMENT, "`address`", shotline_memory_allocate(8, NULL, &none, NULL));
    FAILS(INVALID_ARGUMENT, "at least one byte", shotline_memory_allocate(0, NULL, &none, &at));
    FAILS(INVALID_ARGUMENT, "expected heap, huge", shotline_memory_allocate(8, "cuda:0", &none, &at));
    CHECK(none.id == 0);
    SUCCEEDS(shotline_memory_allocate(8, "memfd", &none, &at));
    memset(at, 1, 8);
    SUCCEEDS(shotline_memory_free(none));
    FAILS(CLOSED, "this memory is closed", shotline_memory_free(none));
    SUCCEEDS(shotline_memory_allocate(LENGTH, NULL, &memory, &at));
    bytes = (char *)at;
    SUCCEEDS(shotline_memory_allocate(LENGTH, NULL, &served_memory, &at));
    served = (char *)at;
    CHECK(served[0] == 0 && served[LENGTH - 1] == 0);
}

static void check_targets(void)
{
    shotline_served_region data;
    shotline_target_options options = SHOTLINE_ZERO;
    shotline_target one;
    shotline_target_state state;
    char text[4];
    data.name = "a b";
    data.rights = "r";
    data.memory = served_memory;
    FAILS(INVALID_ARGUMENT, "`target`", shotline_target_serve(&data, 1, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "`regions`", shotline_target_serve(NULL, 1, NULL, &one));
    FAILS(INVALID_ARGUMENT, "", shotline_target_serve(&data, 1, NULL, &one));
    data.name = NULL;
    FAILS(INVALID_ARGUMENT, "`regions.name`", shotline_target_serve(&data, 1, NULL, &one));
    data.name = "data";
    data.rights = "rx";
    FAILS(INVALID_ARGUMENT, "expected rights r, w", shotline_target_serve(&data, 1, NULL, &one));
    data.rights = "r";
    data.memory.id = 0;
    FAILS(INVALID_ARGUMENT, "handle of a memory", shotline_target_serve(&data, 1, NULL, &one));
    data.memory = served_memory;
    options.listen = "here";
    FAILS(INVALID_ARGUMENT, "found here", shotline_target_serve(&data, 1, &options, &one));
    options.reserved[0] = 1;
    FAILS(INVALID_ARGUMENT, "SHOTLINE_ZERO", shotline_target_serve(&data, 1, &options, &one));
    CHECK(one.id == 0);
    target = serve();
    FAILS(INVALID_ARGUMENT, "`state`", shotline_target_get_state(target, NULL));
    FAILS(NOT_FOUND, "address or token", shotline_target_get_text(target, "colour", NULL, 0, NULL));
    FAILS(BUFFER_TOO_SMALL, "found one for 4", shotline_target_get_text(target, "token", text, 4, NULL));
    SUCCEEDS(shotline_target_get_state(target, &state));
    CHECK(state.initiators == 0);
}

static void check_endpoints(void)
{
    const char *other = "00112233445566778899aabbccddeeff";
    shotline_endpoint none;
    shotline_remote_region found[2];
    size_t count;
    FAILS(INVALID_ARGUMENT, "`to`", shotline_endpoint_connect(NULL, token, NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "`token`", shotline_endpoint_connect(address, NULL, NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "`endpoint`", shotline_endpoint_connect(address, token, NULL, NULL, NULL));
    FAILS(INVALID_ARGUMENT, "32 hexadecimal", shotline_endpoint_connect(address, "x", NULL, NULL, &none));
    FAILS(INVALID_ARGUMENT, "expected soft, shm", shotline_endpoint_connect(address, token, "tcp", NULL, &none));
    FAILS(REFUSED, "wrong token", shotline_endpoint_connect(address, other, NULL, NULL, &none));
    FAILS(IO, "cannot reach", shotline_endpoint_connect("127.0.0.1:1", token, NULL, NULL, &none));
    CHECK(none.id == 0 && shotline_last_errno() != 0);
    SUCCEEDS(shotline_endpoint_connect(address, token, NULL, NULL, &endpoint));
    FAILS(INVALID_ARGUMENT, "`count`", shotline_endpoint_read_regions(endpoint, found, 2, NULL));
    FAILS(BUFFER_TOO_SMALL, "regions", shotline_endpoint_read_regions(endpoint, found, 0, &count));
    SUCCEEDS(shotline_endpoint_read_regions(endpoint, found, 2, &count));
    CHECK(count == 1 && !strcmp(found[0].name, "data") && !strcmp(found[0].rights, "atomic"));
    FAILS(NOT_FOUND, "(data), found colour", shotline_endpoint_find_region(endpoint, "colour", &remote));
    SUCCEEDS(shotline_endpoint_find_region(endpoint, "data", &remote));
    CHECK(remote.length == LENGTH && remote.rkey == found[0].rkey);
    SUCCEEDS(shotline_endpoint_write(endpoint, &remote, 100, "words", 5));
    SUCCEEDS(shotline_endpoint_read(endpoint, &remote, 99, bytes, 7));
    CHECK(!memcmp(bytes, "\0words\0", 7) && !memcmp(served + 100, "words", 5));
    FAILS(INVALID_ARGUMENT, "inside region data", shotline_endpoint_read(endpoint, &remote, LENGTH - 1, bytes, 2));
    FAILS(INVALID_ARGUMENT, "`region`", shotline_endpoint_read(endpoint, NULL, 0, bytes, 2));
    FAILS(INVALID_ARGUMENT, "`from`", shotline_endpoint_write(endpoint, &remote, 0, NULL, 2));
    memset(found[0].name, 'a', sizeof found[0].name);
    FAILS(INVALID_ARGUMENT, "a zero at its end", shotline_endpoint_read(endpoint, &found[0], 0, bytes, 2));
}

static void check_queues(void)
{
    shotline_qp_options options = SHOTLINE_ZERO;
    shotline_cq none;
    shotline_completion completion;
    size_t count;
    FAILS(INVALID_ARGUMENT, "rights", shotline_endpoint_register(endpoint, memory, "rx", &region, NULL));
    SUCCEEDS(shotline_endpoint_register(endpoint, memory, NULL, &region, &local));
    CHECK(local.length == LENGTH);
    FAILS(INVALID_ARGUMENT, "`cq`", shotline_cq_create(endpoint, 4, NULL));
    none.id = 0;
    SUCCEEDS(shotline_cq_create(endpoint, 64, &cq));
    FAILS(INVALID_ARGUMENT, "completion queue", shotline_qp_create(endpoint, none, cq, NULL, &qp));
    options.retry_cnt = 8;
    FAILS(INVALID_ARGUMENT, "`retry_cnt` of at most 7", shotline_qp_create(endpoint, cq, cq, &options, &qp));
    options.retry_cnt = 0;
    options.mtu = 1000;
    FAILS(INVALID_ARGUMENT, "`mtu`", shotline_qp_create(endpoint, cq, cq, &options, &qp));
    options.mtu = 0;
    options.reserved[4] = 1;
    FAILS(INVALID_ARGUMENT, "SHOTLINE_ZERO", shotline_qp_create(endpoint, cq, cq, &options, &qp));
    options.reserved[4] = 0;
    options.receives = 16;
    options.receive_bytes = 64;
    FAILS(REFUSED, "--messages", shotline_qp_create(endpoint, cq, cq, &options, &qp));
    options.receives = 0;
    options.max_send_wr = 4;
    options.max_recv_wr = 1;
    SUCCEEDS(shotline_qp_create(endpoint, cq, cq, &options, &qp));
    FAILS(BUSY, "in use", shotline_cq_close(cq));
    FAILS(INVALID_ARGUMENT, "`completions`", shotline_cq_poll(cq, NULL, 1, &count));
    FAILS(INVALID_ARGUMENT, "`capacity`", shotline_cq_wait(cq, 0, &completion, 0, &count));
    FAILS(TIMEOUT, "within the limit", shotline_cq_wait(cq, 0, &completion, 1, &count));
    SUCCEEDS(shotline_cq_poll(cq, &completion, 1, &count));
    CHECK(count == 0 && !shotline_wc_status_name(11) && !strcmp(shotline_wc_status_name(7), "remote_access"));
}

static shotline_completion next(void)
{
    shotline_completion completion;
    size_t count;
    SUCCEEDS(shotline_cq_wait(cq, SHOTLINE_FOREVER, &completion, 1, &count));
    CHECK(count == 1);
    return completion;
}

static void check_requests(void)
{
    shotline_send_wr requests[5];
    shotline_recv_wr receive = SHOTLINE_ZERO;
    shotline_sge whole;
    shotline_completion completion;
    size_t posted;
    uint64_t original;
    whole.address = local.address;
    whole.length = 8;
    whole.lkey = local.lkey;
    memset(requests, 0, sizeof requests);
    FAILS(INVALID_ARGUMENT, "`requests`", shotline_qp_post_send(qp, NULL, 1, NULL));
    requests[0].operation = 99;
    FAILS(INVALID_ARGUMENT, "shotline_operation, found 99", shotline_qp_post_send(qp, requests, 1, &posted));
    requests[0].operation = SHOTLINE_WRITE;
    requests[0].length = 1;
    FAILS(INVALID_ARGUMENT, "`sges`", shotline_qp_post_send(qp, requests, 1, &posted));
    requests[0].sges = &whole;
    requests[0].flags = 128;
    FAILS(INVALID_ARGUMENT, "flags", shotline_qp_post_send(qp, requests, 1, &posted));
    requests[0].flags = 0;
    requests[0].reserved = 1;
    FAILS(INVALID_ARGUMENT, "SHOTLINE_ZERO", shotline_qp_post_send(qp, requests, 1, &posted));
    requests[0].reserved = 0;
    for (int at = 0; at < 5; at++) {
        requests[at] = requests[0];
        requests[at].id = (uint64_t)at;
        requests[at].remote_address = remote.address + 64u * (uint64_t)at;
        requests[at].rkey = remote.rkey;
    }
    memcpy(bytes, "8 bytes", 8);
    FAILS(QUEUE_FULL, "request 4", shotline_qp_post_send(qp, requests, 5, &posted));
    CHECK(posted == 4);
    for (int at = 0; at < 4; at++) {
        completion = next();
        CHECK(completion.id == (uint64_t)at && completion.status == SHOTLINE_WC_SUCCESS);
        CHECK(completion.kind == SHOTLINE_COMPLETION_WRITE);
    }
    CHECK(!memcmp(served + 192, "8 bytes", 8));
    receive.id = 70;
    receive.sges = &whole;
    receive.length = 1;
    SUCCEEDS(shotline_qp_post_recv(qp, &receive, 1, &posted));
    CHECK(posted == 1);
    FAILS(QUEUE_FULL, "request 0", shotline_qp_post_recv(qp, &receive, 1, &posted));
    CHECK(posted == 0);
    /* Inline data needs no registration. */
    requests[0].inline_data = "inline";
    requests[0].length = 7;
    SUCCEEDS(shotline_qp_post_send(qp, requests, 1, NULL));
    CHECK(next().status == SHOTLINE_WC_SUCCESS && !strcmp(served, "inline"));
    /* Atomic operations on the same 8 bytes. */
    memset(requests, 0, sizeof requests);
    requests[0].operation = SHOTLINE_FETCH_ADD;
    requests[0].flags = SHOTLINE_WR_UNSIGNALLED;
    requests[0].sges = &whole;
    requests[0].length = 1;
    requests[0].remote_address = remote.address + 1024;
    requests[0].rkey = remote.rkey;
    requests[0].compare_add = 5;
    requests[1] = requests[0];
    requests[1].operation = SHOTLINE_COMPARE_SWAP;
    requests[1].flags = 0;
    requests[1].swap = 9;
    SUCCEEDS(shotline_qp_post_send(qp, requests, 2, &posted));
    completion = next();
    CHECK(posted == 2 && completion.kind == SHOTLINE_COMPLETION_COMPARE_SWAP);
    memcpy(&original, bytes, 8);
    CHECK(original == 5 && served[1024] == 9);
    /* A key that the target does not have: a strict target answers. */
    requests[0].rkey ^= 1;
    SUCCEEDS(shotline_qp_post_send(qp, requests, 1, NULL));
    completion = next();
    CHECK(completion.status == SHOTLINE_WC_REMOTE_ACCESS);
    CHECK(strstr(shotline_wc_status_meaning(completion.status), "refused the access"));
    completion = next();
    CHECK(completion.id == 70 && completion.status == SHOTLINE_WC_FLUSHED);
}

/* --- ends -------------------------------------------------------------------------------------------------------- */

struct waiter {
    shotline_cq cq;
    shotline_status expected;
    pthread_barrier_t *ready;
};

static void *wait_for_the_end(void *user)
{
    struct waiter *waiter = (struct waiter *)user;
    shotline_completion completion;
    shotline_status status;
    size_t count;
    pthread_barrier_wait(waiter->ready);
    status = shotline_cq_wait(waiter->cq, SHOTLINE_FOREVER, &completion, 1, &count);
    CHECK(status == waiter->expected);
    return NULL;
}

/* Threads wait for completions that do not come, while the target ends or the endpoint is closed. */
static void check_ends_while_waiting(int by_target)
{
    struct waiter waiters[WAITERS];
    pthread_t threads[WAITERS];
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, WAITERS + 1);
    for (int at = 0; at < WAITERS; at++) {
        SUCCEEDS(shotline_cq_create(endpoint, 4, &waiters[at].cq));
        waiters[at].expected = by_target ? SHOTLINE_ERROR_ENDED : SHOTLINE_ERROR_CLOSED;
        waiters[at].ready = &ready;
        CHECK(!pthread_create(&threads[at], NULL, wait_for_the_end, &waiters[at]));
    }
    pthread_barrier_wait(&ready);
    if (by_target)
        SUCCEEDS(shotline_target_close(target));
    else
        SUCCEEDS(shotline_endpoint_close(endpoint));
    for (int at = 0; at < WAITERS; at++)
        CHECK(!pthread_join(threads[at], NULL));
    if (!by_target)
        FAILS(CLOSED, "is closed", shotline_cq_create(endpoint, 4, &waiters[0].cq));
    pthread_barrier_destroy(&ready);
}

static int is_child;

/* A child process has the memory of threads that it does not have: LeakSanitizer would report what they own. */
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void check_fork(void)
{
    shotline_completion completion;
    size_t count;
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        is_child = 1;
        FAILS(FORKED, "belongs to the parent", shotline_cq_poll(cq, &completion, 1, &count));
        FAILS(FORKED, "belongs to the parent", shotline_target_close(target));
        FAILS(FORKED, "belongs to the parent", shotline_endpoint_close(endpoint));
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    SUCCEEDS(shotline_endpoint_write(endpoint, &remote, 0, "still", 5));
}

int main(void)
{
    check_memory();
    check_targets();
    check_endpoints();
    check_queues();
    check_requests();
    check_fork();
    SUCCEEDS(shotline_qp_close(qp));
    FAILS(CLOSED, "this queue pair is closed", shotline_qp_close(qp));
    SUCCEEDS(shotline_cq_close(cq));
    FAILS(CLOSED, "this completion queue is closed", shotline_cq_close(cq));
    SUCCEEDS(shotline_region_close(region));
    check_ends_while_waiting(0);
    FAILS(CLOSED, "this endpoint is closed", shotline_endpoint_close(endpoint));
    SUCCEEDS(shotline_endpoint_connect(address, token, NULL, NULL, &endpoint));
    check_ends_while_waiting(1);
    FAILS(CLOSED, "this target is closed", shotline_target_close(target));
    SUCCEEDS(shotline_memory_free(served_memory));
    SUCCEEDS(shotline_memory_free(memory));
    SUCCEEDS(shotline_endpoint_close(endpoint));
    puts("every wrong call has failed as documented");
    return 0;
}
