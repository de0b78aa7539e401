/* SPDX-License-Identifier: Apache-2.0 */
/* millrace top: two readings of the shared counters make a screen of rates. On a terminal it draws
 * in place and obeys keys; elsewhere each interval is printed under the last. Only reads. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/client.h"
#include "cli/instance.h"
#include "cli/live.h"
#include "cli/table.h"

enum {
    INTERVAL_MS_MIN = 100,
    INTERVAL_MS_MAX = 3600000,
    INTERVAL_MS = 1000,
    PARTITIONS_PLAIN = 20, /* shown where there is no screen to fill */
    PARTITIONS_MIN = 3,
    LINES_OTHERS = 8, /* headings, blank lines and the keys */
};

static const char *const sort_keys[] = {"bytes_in_s", "bytes_out_s", "records_s", "topic"};

struct screen {
    bool terminal; /* draws in place, takes keys */
    struct termios before;
    uint32_t sort;
};

/* --- rows ---------------------------------------------------------------------------------------
 */

/* True when a stands before b. */
static bool stands_before(const json_t *a, const json_t *b, const char *key)
{
    const json_t *left = json_object_get(a, key);
    const json_t *right = json_object_get(b, key);
    if (json_is_string(left)) {
        return strcmp(json_string_value(left), json_string_value(right)) < 0;
    }
    return json_number_value(left) > json_number_value(right);
}

/* The first max rows in order; a short list, so that plain insertion will do. */
static json_t *sorted(const json_t *rows, const char *key, size_t max)
{
    json_t *list = json_array();
    size_t index;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, index, row)
    {
        size_t at = json_array_size(list);
        while (at > 0 && stands_before(row, json_array_get(list, at - 1), key)) {
            at--;
        }
        json_array_insert(list, at, row);
        if (json_array_size(list) > max) {
            json_array_remove(list, max);
        }
    }
    return list;
}

/* Rows whose count is not 0. */
static json_t *with_count(const json_t *rows)
{
    json_t *list = json_array();
    size_t index;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, index, row)
    {
        if (json_integer_value(json_object_get(row, "count")) > 0) {
            json_array_append(list, row);
        }
    }
    return list;
}

/* --- screen -------------------------------------------------------------------------------------
 */

static void screen_open(struct screen *screen)
{
    struct termios raw;
    screen->terminal = isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &screen->before) == 0;
    if (screen->terminal) {
        raw = screen->before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
        printf("\033[?25l"); /* no cursor */
    }
}

static void screen_close(const struct screen *screen)
{
    if (screen->terminal) {
        printf("\033[?25h");
        tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
    }
}

/* How many partitions fit beside the other tables. */
static size_t partitions_fit(const struct screen *screen, size_t other_lines)
{
    struct winsize size;
    if (!screen->terminal) {
        return PARTITIONS_PLAIN;
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_row < other_lines + PARTITIONS_MIN) {
        return PARTITIONS_MIN;
    }
    return size.ws_row - other_lines;
}

static void draw(const struct screen *screen, const json_t *root)
{
    static const char *const core_columns[] = {
        "core",        "cpu",        "busy_ratio",  "stolen_ratio",  "requests_s",
        "batches_s",   "bytes_in_s", "bytes_out_s", "handed_over_s", "wakeups_s",
        "connections", "stalls",     NULL};
    static const char *const port_columns[] = {
        "name",       "link",        "rx_packets_s", "rx_bytes_s",  "tx_packets_s",
        "tx_bytes_s", "rx_missed_s", "rx_nombuf_s",  "tx_errors_s", NULL};
    static const char *const stage_columns[] = {"api",    "stage",  "count", "p50_us",
                                                "p99_us", "max_us", NULL};
    static const char *const partition_columns[] = {"topic",        "partition",   "core",
                                                    "bytes_in_s",   "bytes_out_s", "records_s",
                                                    "start_offset", "end_offset",  NULL};
    static const char *const taker_columns[] = {"core",    "name",  "pid",    "kind",
                                                "time_ns", "count", "max_ns", NULL};
    const json_t *cores = json_object_get(root, "cores");
    const json_t *ports = json_object_get(root, "ports");
    json_t *stages = with_count(json_object_get(root, "stages"));
    json_t *takers = sorted(json_object_get(root, "taken"), "time_ns", 5);
    size_t lines = LINES_OTHERS + json_array_size(cores) + json_array_size(ports) +
                   json_array_size(stages) + json_array_size(takers);
    const char *key = sort_keys[screen->sort];
    json_t *partitions =
        sorted(json_object_get(root, "partitions"), key, partitions_fit(screen, lines));
    if (screen->terminal) {
        printf("\033[H\033[2J");
    }
    table_print(cores, core_columns);
    if (json_array_size(ports) > 0) {
        table_print(ports, port_columns);
    }
    table_print(stages, stage_columns);
    if (json_array_size(takers) > 0) {
        table_print(takers, taker_columns);
    }
    table_print(partitions, partition_columns);
    printf(screen->terminal ? "by %s; keys: s sorts, q quits\n" : "\n", key);
    fflush(stdout);
    json_decref(stages);
    json_decref(takers);
    json_decref(partitions);
}

/* --- the loop -----------------------------------------------------------------------------------
 */

enum wish {
    WISH_NONE,
    WISH_DRAW,
    WISH_QUIT,
};

static enum wish key_take(struct screen *screen)
{
    char key;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') {
        return WISH_QUIT;
    }
    if (key == 's' || key == 'S') {
        screen->sort = (screen->sort + 1) % (uint32_t)MILL_COUNT_OF(sort_keys);
        return WISH_DRAW;
    }
    return WISH_NONE;
}

/* Waits for the end of the interval, drawing again when a key asks for it. ret: false: quit. */
static bool wait_interval(struct screen *screen, const json_t *shown, uint64_t end_ns)
{
    for (;;) {
        uint64_t now_ns = mill_now_read().mono_ns;
        struct pollfd fd = {.fd = screen->terminal ? STDIN_FILENO : -1, .events = POLLIN};
        if (now_ns >= end_ns) {
            return true;
        }
        uint64_t left_ms = MILL_MIN((end_ns - now_ns) / MILL_NS_PER_MS + 1, 100ull);
        if (poll(&fd, 1, (int)left_ms) > 0) {
            enum wish wish = key_take(screen);
            if (wish == WISH_QUIT) {
                return false;
            }
            if (wish == WISH_DRAW && shown) {
                draw(screen, shown);
            }
        }
        if (signal_taken()) {
            return false;
        }
    }
}

/* ret: exit code. */
static int watch(struct instance *instance, uint64_t interval_ns, bool once, bool json)
{
    struct live_reading readings[2] = {0};
    struct screen screen = {0};
    json_t *root = NULL;
    uint32_t now = 0;
    int code = live_read(instance->counters, &readings[now]) < 0 ? CLI_FAILED : CLI_OK;
    if (!once && !json) {
        screen_open(&screen);
    }
    while (code == CLI_OK && wait_interval(&screen, root, readings[now].at_ns + interval_ns)) {
        now = 1 - now;
        code = live_read(instance->counters, &readings[now]) < 0 ? CLI_FAILED : CLI_OK;
        if (code != CLI_OK || !instance_is_running(instance)) {
            break;
        }
        json_decref(root);
        root = live_json(&readings[1 - now], &readings[now]);
        if (json) {
            table_json(root);
            fflush(stdout);
        } else {
            draw(&screen, root);
        }
        if (once || ferror(stdout)) {
            break;
        }
    }
    screen_close(&screen);
    if (code == CLI_OK && !instance_is_running(instance)) {
        code = cli_fail(CLI_FAILED, "the instance in %s has stopped", instance->dir);
    } else if (code != CLI_OK) {
        cli_fail(code, "no memory");
    }
    json_decref(root);
    live_free(&readings[0]);
    live_free(&readings[1]);
    return code;
}

int cli_top(const struct cli_call *call)
{
    struct instance instance;
    int64_t interval_ms;
    bool json;
    if (cli_wants_json(call, &json) < 0 ||
        cli_number(call, "-i", INTERVAL_MS, INTERVAL_MS_MIN, INTERVAL_MS_MAX, &interval_ms) < 0) {
        return CLI_USAGE;
    }
    int code = instance_find(call, &instance);
    code = code != 0 ? code : instance_open(&instance);
    if (code != 0) {
        return code;
    }
    signals_hold();
    return watch(&instance, (uint64_t)interval_ms * MILL_NS_PER_MS,
                 cli_value(call, "--once", NULL) != NULL, json);
}
