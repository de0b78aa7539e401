/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of our own; see wire.h. */
#include "cli/wire.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/byteorder.h"

enum {
    REQUEST_BYTES = 64 << 10,
    ANSWER_BYTES_MAX = 64 << 20,
    APIS_MAX = 256,
    WIRE_TIMEOUT_S = 15,
};

struct wire {
    int socket;
    int32_t correlation_id;
    struct mill_buf buf;
    uint8_t *answer;
    struct mill_api_versions_response_api_keys apis[APIS_MAX];
    uint32_t apis_count;
};

bool wire_may(const struct cli_call *call)
{
    static const char key[] = "security.protocol=";
    const char *pair;
    for (uint32_t i = 0; (pair = cli_value_at(call, "-X", i)) != NULL; i++) {
        if (strncmp(pair, key, sizeof(key) - 1) == 0 &&
            strcasecmp(pair + sizeof(key) - 1, "plaintext") != 0) {
            return false;
        }
    }
    return true;
}

static int connect_to(const char *host, int32_t port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct timeval limit = {.tv_sec = WIRE_TIMEOUT_S};
    struct addrinfo *found = NULL;
    char service[16];
    int fd = -1;
    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0) {
        return -1;
    }
    for (const struct addrinfo *one = found; one && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (fd >= 0) {
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        }
        if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static int encode_versions(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_api_versions_request_encode(to, version, message);
}

struct wire *wire_open(const char *host, int32_t port)
{
    struct mill_api_versions_request in;
    struct mill_api_versions_response out;
    struct mill_cursor body;
    struct wire *wire = calloc(1, sizeof(*wire));
    if (!wire) {
        return NULL;
    }
    wire->socket = connect_to(host, port);
    mill_api_versions_request_defaults(&in);
    if (wire->socket < 0 ||
        wire_ask(wire, MILL_API_KEY_API_VERSIONS, 0, encode_versions, &in, &body) < 0 ||
        mill_api_versions_response_decode(&body, 0, &out) < 0) {
        wire_close(wire);
        return NULL;
    }
    while (wire->apis_count < APIS_MAX && mill_api_versions_response_api_keys_next(
                                              &out.api_keys, 0, &wire->apis[wire->apis_count])) {
        wire->apis_count++;
    }
    return wire;
}

void wire_close(struct wire *wire)
{
    if (wire) {
        if (wire->socket >= 0) {
            close(wire->socket);
        }
        free(wire->answer);
        free(wire);
    }
}

int16_t wire_version(const struct wire *wire, int16_t api_key, int16_t least, int16_t most)
{
    for (uint32_t i = 0; i < wire->apis_count; i++) {
        const struct mill_api_versions_response_api_keys *api = &wire->apis[i];
        if (api->api_key == api_key) {
            int16_t version = api->max_version < most ? api->max_version : most;
            return version >= least && version >= api->min_version ? version : (int16_t)-1;
        }
    }
    return -1;
}

static bool send_all(int fd, const uint8_t *bytes, size_t left)
{
    while (left > 0) {
        ssize_t sent = send(fd, bytes, left, MSG_NOSIGNAL);
        if (sent <= 0 && errno != EINTR) {
            return false;
        }
        bytes += MILL_MAX(sent, 0);
        left -= (size_t)MILL_MAX(sent, 0);
    }
    return true;
}

static bool read_all(int fd, uint8_t *bytes, size_t left)
{
    while (left > 0) {
        ssize_t got = recv(fd, bytes, left, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        bytes += MILL_MAX(got, 0);
        left -= (size_t)MILL_MAX(got, 0);
    }
    return true;
}

int wire_ask(struct wire *wire, int16_t api_key, int16_t version, wire_encode encode,
             const void *message, struct mill_cursor *ret_body)
{
    static uint8_t request[REQUEST_BYTES];
    const struct mill_request_header header = {.api_key = api_key,
                                               .api_version = version,
                                               .correlation_id = ++wire->correlation_id,
                                               .client_id = mill_wstr_of("millrace")};
    struct mill_writer to;
    uint8_t size[MILL_FRAME_SIZE_BYTES];
    int32_t id = 0;
    mill_writer_init(&to, request, sizeof(request), NULL, 0);
    mill_wire_request_begin(&to, &header);
    (void)encode(&to, version, message);
    int64_t bytes = mill_wire_request_finish(&to);
    if (bytes < 0) {
        return -EBADMSG;
    }
    if (!send_all(wire->socket, request, (size_t)bytes) ||
        !read_all(wire->socket, size, sizeof(size))) {
        return -EIO;
    }
    uint32_t answer_bytes = mill_load_be32(size);
    uint8_t *answer =
        answer_bytes <= ANSWER_BYTES_MAX ? realloc(wire->answer, answer_bytes + 1) : NULL;
    if (!answer) {
        return -EBADMSG;
    }
    wire->answer = answer;
    if (!read_all(wire->socket, answer, answer_bytes)) {
        return -EIO;
    }
    *ret_body = mill_cursor_over(&wire->buf, answer, answer_bytes);
    return mill_response_header_decode(ret_body, api_key, version, &id) == 0 &&
                   id == header.correlation_id
               ? 0
               : -EBADMSG;
}
