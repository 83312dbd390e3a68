/*
 * Sends messages to a target that sends them back.
 *
 *     messages ADDRESS TOKEN
 */
#include "check.h"

enum { MESSAGES = 8, BYTES = 64 };

int main(int argc, char **argv)
{
    shotline_endpoint endpoint;
    shotline_memory memory;
    shotline_region region;
    shotline_region_info local;
    shotline_cq sends, receives;
    shotline_qp_options options = SHOTLINE_ZERO;
    shotline_qp qp;
    shotline_sge places[MESSAGES];
    shotline_recv_wr receive[MESSAGES];
    shotline_send_wr send = SHOTLINE_ZERO;
    void *bytes;
    uint32_t number;
    CHECK(argc == 3);
    SUCCEEDS(shotline_endpoint_connect(argv[1], argv[2], "soft", NULL, &endpoint));
    SUCCEEDS(shotline_memory_allocate(MESSAGES * BYTES, NULL, &memory, &bytes));
    SUCCEEDS(shotline_endpoint_register(endpoint, memory, NULL, &region, &local));
    SUCCEEDS(shotline_cq_create(endpoint, MESSAGES, &sends));
    SUCCEEDS(shotline_cq_create(endpoint, MESSAGES, &receives));
    options.receives = MESSAGES;
    options.receive_bytes = BYTES;
    options.echo = 1;
    SUCCEEDS(shotline_qp_create(endpoint, sends, receives, &options, &qp));
    SUCCEEDS(shotline_qp_get_numbers(qp, &number, NULL));
    memset(receive, 0, sizeof receive);
    for (uint32_t at = 0; at < MESSAGES; at++) {
        places[at].address = local.address + at * BYTES;
        places[at].length = BYTES;
        places[at].lkey = local.lkey;
        receive[at].id = at;
        receive[at].sges = &places[at];
        receive[at].length = 1;
    }
    SUCCEEDS(shotline_qp_post_recv(qp, receive, MESSAGES, NULL));
    for (uint32_t at = 0; at < MESSAGES; at++) {
        shotline_completion completion;
        size_t count;
        char text[BYTES];
        snprintf(text, sizeof text, "message %u", (unsigned)at);
        send.id = at;
        send.operation = at % 2 ? SHOTLINE_SEND_IMM : SHOTLINE_SEND;
        send.imm = 1000 + at;
        send.inline_data = text;
        send.length = (uint32_t)strlen(text) + 1;
        SUCCEEDS(shotline_qp_post_send(qp, &send, 1, NULL));
        SUCCEEDS(shotline_cq_wait(receives, SHOTLINE_FOREVER, &completion, 1, &count));
        CHECK(completion.status == SHOTLINE_WC_SUCCESS && completion.kind == SHOTLINE_COMPLETION_RECV);
        CHECK(completion.id == at && completion.bytes == send.length && completion.qp == number);
        CHECK(!strcmp((char *)bytes + at * BYTES, text));
        SUCCEEDS(shotline_cq_wait(sends, SHOTLINE_FOREVER, &completion, 1, &count));
        CHECK(completion.id == at && completion.kind == SHOTLINE_COMPLETION_SEND);
    }
    SUCCEEDS(shotline_endpoint_close(endpoint));
    FAILS(CLOSED, "is closed", shotline_qp_post_send(qp, &send, 1, NULL));
    SUCCEEDS(shotline_memory_free(memory));
    puts("all messages came back");
    return 0;
}
