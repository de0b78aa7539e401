/* SPDX-License-Identifier: Apache-2.0 */
/* Spreading of flows over a card's receive queues: the symmetric key and an even table are set
 * where the driver lets us, and read back to be told. Nothing relies on them: a packet that arrives
 * on another core than its connection's is handed over (net/distribute.h). Start-up only. */
#include <stdio.h>
#include <string.h>

#include "dataplane/port/port_internal.h"

enum {
    KEY_BYTES_MAX = 52, /* 40 of the specification; some cards take more */
    RETA_MAX = 512,
};

/* Both directions of a flow hash alike under a key of one repeated 16-bit word (S. Woo, K. Park,
 * technical report on symmetric receive-side scaling, KAIST 2012). */
static void symmetric_key(uint8_t *ret_key, uint32_t size_bytes)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        ret_key[i] = (i & 1) == 0 ? 0x6d : 0x5a;
    }
}

void mill_port_rss_conf(struct mill_port *port, const struct rte_eth_dev_info *info,
                        struct rte_eth_conf *conf)
{
    if (port->driver->virtual_device || port->rx_queues < 2) {
        return;
    }
    conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf->rx_adv_conf.rss_conf.rss_hf =
        info->flow_type_rss_offloads & (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP);
    if (info->hash_key_size > 0 && info->hash_key_size <= sizeof(port->rss_key)) {
        symmetric_key(port->rss_key, info->hash_key_size);
        conf->rx_adv_conf.rss_conf.rss_key = port->rss_key;
        conf->rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
    }
}

static const char *key_read(const struct mill_port *port, uint8_t size_bytes)
{
    uint8_t key[KEY_BYTES_MAX] = {0};
    struct rte_eth_rss_conf conf = {.rss_key = key, .rss_key_len = sizeof(key)};
    static_assert(sizeof(key) == sizeof(port->rss_key), "same room");
    if (rte_eth_dev_rss_hash_conf_get(port->port_id, &conf) != 0) {
        return "key unknown";
    }
    bool ours = size_bytes > 0 && memcmp(key, port->rss_key, size_bytes) == 0;
    return ours ? "symmetric key" : "the card's key";
}

static const char *table_read(const struct mill_port *port, uint16_t size)
{
    struct rte_eth_rss_reta_entry64 table[RETA_MAX / RTE_ETH_RETA_GROUP_SIZE];
    uint16_t groups = (uint16_t)(size / RTE_ETH_RETA_GROUP_SIZE);
    if (size == 0 || size > RETA_MAX || size % RTE_ETH_RETA_GROUP_SIZE != 0) {
        return "table unknown";
    }
    memset(table, 0, sizeof(table));
    for (uint16_t i = 0; i < size; i++) {
        table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = i % port->rx_queues;
    }
    for (uint16_t i = 0; i < groups; i++) {
        table[i].mask = UINT64_MAX;
    }
    (void)rte_eth_dev_rss_reta_update(port->port_id, table, size);
    memset(table, 0xff, sizeof(table));
    if (rte_eth_dev_rss_reta_query(port->port_id, table, size) != 0) {
        return "table unknown";
    }
    for (uint16_t i = 0; i < size; i++) {
        if (table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] !=
            i % port->rx_queues) {
            return "the card's table";
        }
    }
    return "even table";
}

void mill_port_rss_settle(struct mill_port *port)
{
    struct rte_eth_dev_info info;
    if (port->rx_queues < 2) {
        snprintf(port->rss, sizeof(port->rss), "one queue");
    } else if (port->driver->virtual_device) {
        snprintf(port->rss, sizeof(port->rss), "by the other end");
    } else if (rte_eth_dev_info_get(port->port_id, &info) == 0) {
        snprintf(port->rss, sizeof(port->rss), "%s, %s", key_read(port, info.hash_key_size),
                 table_read(port, info.reta_size));
    }
}
