/* SPDX-License-Identifier: Apache-2.0 */
/* Every counter that a user can see, one list per kind: X(name, help). The structs of the owners,
 * the shared view (ipc/counters.h), status and metrics all come from these lists, so that no name
 * is written twice. TOTALS only grow, LEVELS are values of now; COUNTERS are both. Names that end
 * in _ns are times. All are 64-bit and have one writer. */
#ifndef MILL_BASE_COUNTER_LISTS_H
#define MILL_BASE_COUNTER_LISTS_H

/* One instance of our TCP/IP. */
#define MILL_NET_COUNTERS(X)                                                                       \
    X(rx_frames, "frames received")                                                                \
    X(rx_malformed, "frames with a wrong length, header or option")                                \
    X(rx_not_ours, "frames for another address, protocol or EtherType")                            \
    X(rx_fragments, "IPv4 fragments dropped")                                                      \
    X(rx_options, "IPv4 packets with source routing dropped")                                      \
    X(checksum_errors, "packets with a wrong IPv4 or TCP checksum")                                \
    X(tx_frames, "frames handed to the link")                                                      \
    X(tx_no_frame, "times no frame could be had from the link")                                    \
    X(tx_short, "times the link took fewer frames than offered")                                   \
    X(arp_requests_in, "ARP requests for our address")                                             \
    X(arp_conflicts, "ARP packets of others that claim our address")                               \
    X(arp_unresolved, "packets dropped because the neighbour did not answer")                      \
    X(icmp_echo, "ICMP echo requests answered")                                                    \
    X(icmp_limited, "ICMP or RST answers suppressed by the rate limit")                            \
    X(syn_received, "SYN segments for a listening port")                                           \
    X(syn_dropped, "SYN segments dropped because the half-open table or a limit was full")         \
    X(established, "connections established")                                                      \
    X(retransmits, "segments sent again")                                                          \
    X(rto_fired, "retransmission timeouts")                                                        \
    X(fast_retransmits, "recoveries begun by duplicate or selective acknowledgements")             \
    X(out_of_order, "segments received out of order")                                              \
    X(ooo_dropped, "out-of-order segments dropped at the cap")                                     \
    X(duplicates, "segments whose bytes had all been received")                                    \
    X(window_exceeded, "segments beyond the advertised window")                                    \
    X(budget_dropped, "segments dropped because the receive budget was used up")                   \
    X(resets_in, "valid RST received")                                                             \
    X(resets_out, "RST sent")                                                                      \
    X(challenge_acks, "challenge acknowledgements sent (RFC 5961)")                                \
    X(paws_dropped, "segments dropped by timestamp (RFC 7323)")                                    \
    X(zero_window_probes, "window probes sent")                                                    \
    X(timeouts, "connections dropped by the user timeout")                                         \
    X(misdirected, "packets handed to another core, before TCP or because it owns the connection") \
    X(handover_dropped, "packets for another core dropped because its ring was full")              \
    X(old_peers_asked, "SYN segments to peers of a killed process, which its reset then reaches")  \
    X(flows_unshared, "connections that other cores cannot find because the flow map was full")

/* One port. */
#define MILL_PORT_TOTALS(X)                                                                        \
    X(rx_packets, "frames received")                                                               \
    X(rx_bytes, "bytes received")                                                                  \
    X(rx_missed, "frames the device dropped because the ring was full")                            \
    X(rx_nombuf, "frames dropped because the pool was empty")                                      \
    X(tx_packets, "frames sent")                                                                   \
    X(tx_bytes, "bytes sent")                                                                      \
    X(tx_errors, "frames dropped at transmit: refused by the driver or too long")                  \
    X(tx_stuck, "frames dropped after the driver made no progress (TAP)")                          \
    X(tx_link_down, "frames dropped because the link was down (memif)")                            \
    X(link_downs, "times the link went down")                                                      \
    X(tx_fillers, "frames to ourselves, so that an idle card gives back what it has sent")         \
    X(bytes_linearised, "reference bytes copied because the driver needs it")                      \
    X(frames_empty, "times no frame was free")                                                     \
    X(steer_redirected, "packets that the XDP program gave to this port (AF_XDP)")                 \
    X(steer_no_socket, "packets for this port on a queue that is not served, left to the kernel")  \
    X(steer_syn_over_limit, "SYNs dropped because their source sent too many (AF_XDP)")            \
    X(steer_malformed, "packets shorter than their headers say, left to the kernel (AF_XDP)")      \
    X(steer_fragments, "IPv4 fragments, left to the kernel (AF_XDP)")                              \
    X(steer_passed, "other packets of the interface, left to the kernel (AF_XDP)")
#define MILL_PORT_LEVELS(X)                                                                        \
    X(mbufs_total, "buffers of this port's pools")                                                 \
    X(mbufs_used, "buffers in use")
#define MILL_PORT_COUNTERS(X) MILL_PORT_TOTALS(X) MILL_PORT_LEVELS(X)

/* One core. */
#define MILL_CORE_TOTALS(X)                                                                        \
    X(turns, "turns of the loop")                                                                  \
    X(busy_ns, "time in turns that found work")                                                    \
    X(asleep_ns, "time slept")                                                                     \
    X(requests, "requests answered")                                                               \
    X(produce_failed, "produce requests with an error for a partition")                            \
    X(fetch_failed, "fetch requests with an error, of the whole or for a partition")               \
    X(handed_over, "operations sent to the core that owns the partition")                          \
    X(misdirected, "packets received here and handed to another core")                             \
    X(wakeups_sent, "times another thread's bell was rung")                                        \
    X(frames_forwarded, "requests forwarded to control")                                           \
    X(frames_expired, "forwarded requests answered here because control did not")                  \
    X(frame_ring_full, "times the ring to control was full")                                       \
    X(requests_full, "times no request slot was free")                                             \
    X(staged_total, "bytes ever gathered in arena memory")                                         \
    X(stage_full, "times staging had no memory")                                                   \
    X(producers_full, "times there was no room for a partition's list of producers")               \
    X(bad_frames, "connections closed for a malformed frame")                                      \
    X(unknown_apis, "connections closed for an API or version that is not served")                 \
    X(slow_readers, "connections dropped because they held memory without progress")               \
    X(slow_writers, "connections dropped because a request came too slowly")                       \
    X(arena_full, "times no extent was free")                                                      \
    X(dirty_full, "times producers were not read because of log.dirty.max.mb")                     \
    X(log_bytes_in, "record-batch bytes received by appends")                                      \
    X(log_bytes_out, "record-batch bytes given to fetches")                                        \
    X(batches_in, "record batches appended")                                                       \
    X(records_in, "records appended")                                                              \
    X(batches_refused, "record batches refused")                                                   \
    X(batches_inspected, "record batches that a worker looked into before they were appended")     \
    X(batches_recompressed,                                                                        \
      "of those looked into, stored with the topic's codec in place of their own")                 \
    X(parked_full, "times a batch found no place to wait for that")                                \
    X(cold_reads, "reads of files that a fetch waited for")                                        \
    X(cold_reads_ahead, "reads of files made before a fetch asked")                                \
    X(cold_bytes, "bytes of extents filled from files")                                            \
    X(cold_full, "times a fetch waited because of log.cold.max.mb")                                \
    X(compactions, "compactions of partitions that came to their end")                             \
    X(compactions_stopped, "compactions given up: trimmed, deleted or no longer compacted")        \
    X(compactions_failed, "compactions given up because of a full disk, damage or an error")       \
    X(compaction_bytes_in, "bytes of the log read by compaction")                                  \
    X(compaction_bytes_out, "bytes written by it")                                                 \
    X(compaction_records_removed, "records that it left out")                                      \
    X(produce_throttled, "Produce requests whose client has to wait (producer_byte_rate)")         \
    X(fetch_throttled, "Fetch requests whose client has to wait (consumer_byte_rate)")             \
    X(request_throttled, "requests whose client has to wait (request_percentage)")                 \
    X(charged_ns, "time of the core that request_percentage was charged with")                     \
    X(throttled_ns, "time in which connections are not read because of these")                     \
    X(quota_clients_full, "requests under a quota of clients without a place in its table")        \
    X(fetch_sessions_evicted, "fetch sessions pushed out to make room for another")                \
    X(fetch_sessions_refused, "fetch sessions not given, or ended, because of a bound")            \
    X(stalls, "times the core made no turn for 10 ms or longer while it was awake")                \
    X(stalled_ns, "time of these stalls")                                                          \
    X(partition_rows_full, "times a busy partition took the row of another in the table of them")
#define MILL_CORE_LEVELS(X)                                                                        \
    X(connections, "connections open now")                                                         \
    X(partitions, "partitions owned")                                                              \
    X(bytes_staged, "bytes of incomplete requests gathered in arena memory now")                   \
    X(waiting_fetches, "fetches that wait for data now")                                           \
    X(waiting_syncs, "appends that wait for a sync before they are answered")                      \
    X(producers, "idempotent producers whose state is kept")                                       \
    X(muted, "connections that are not read now because of a quota")                               \
    X(fetch_sessions, "incremental fetch sessions kept")                                           \
    X(fetch_session_partitions, "partitions of these sessions")                                    \
    X(loaned_bytes, "bytes of extents on loan now")                                                \
    X(arena_used_bytes, "bytes in extents of this core")                                           \
    X(dirty_bytes, "appended bytes not yet in the files")                                          \
    X(stall_max_ns, "the longest time without a turn while awake")                                 \
    X(compaction_last_ns, "how long the last compaction of a partition took")                      \
    X(compaction_last_bytes_in, "bytes of the segments that it wrote anew")                        \
    X(compaction_last_bytes_out, "bytes that it left of them")                                     \
    X(compaction_last_keys, "keys in its map")                                                     \
    X(compaction_last_keys_max, "keys that its map has room for")                                  \
    X(compaction_dirty_ppm, "millionths that are not compacted yet of the partition with most")
#define MILL_CORE_COUNTERS(X) MILL_CORE_TOTALS(X) MILL_CORE_LEVELS(X)

/* One of a core's busy partitions; since it was opened. */
#define MILL_PARTITION_TOTALS(X)                                                                   \
    X(bytes_in, "record-batch bytes appended")                                                     \
    X(bytes_out, "record-batch bytes given to fetches")
#define MILL_PARTITION_LEVELS(X)                                                                   \
    X(start_offset, "log start offset")                                                            \
    X(end_offset, "log end offset")
#define MILL_PARTITION_COUNTERS(X) MILL_PARTITION_TOTALS(X) MILL_PARTITION_LEVELS(X)

/* One listener on one core; record-batch bytes, as contract says. */
#define MILL_LISTENER_TOTALS(X)                                                                    \
    X(bytes_in, "record-batch bytes received, refused ones too")                                   \
    X(bytes_rejected, "record-batch bytes received and refused")                                   \
    X(bytes_out, "record-batch bytes sent")                                                        \
    X(bytes_copied_in, "record-batch bytes copied on the way in, into staging too")                \
    X(bytes_copied_out, "record-batch bytes copied above the port on the way out")                 \
    X(bytes_inlined, "record-batch bytes copied because below the inline threshold")               \
    X(accepted, "connections accepted")                                                            \
    X(refused, "connections refused at a limit")                                                   \
    X(refused_connections, "of these, those above max.connections")                                \
    X(refused_address, "of these, those above max.connections.per.ip or its overrides")            \
    X(refused_rate, "of these, those above max.connection.creation.rate")
#define MILL_LISTENER_LEVELS(X)   X(connections, "connections open now")
#define MILL_LISTENER_COUNTERS(X) MILL_LISTENER_TOTALS(X) MILL_LISTENER_LEVELS(X)

/* Who took a core off its CPU, as bpf/jitter.bpf.c saw it; 0 where it may not be watched. */
#define MILL_JITTER_TOTALS(X)                                                                      \
    X(stolen_ns, "time in which the core could have run but others had its CPU")                   \
    X(stolen_count, "times the core was taken off its CPU")                                        \
    X(unnamed_ns, "time taken by takers that found no room in the table, or had to leave it")      \
    X(table_full, "times the table had no room for a taker")                                       \
    X(map_full, "times the kernel's table had none")
#define MILL_JITTER_LEVELS(X)                                                                      \
    X(stolen_max_ns, "the longest time that others had the CPU")                                   \
    X(standstill_ns, "how long the core has made no turn while awake; 0 while it runs")
#define MILL_JITTER_COUNTERS(X) MILL_JITTER_TOTALS(X) MILL_JITTER_LEVELS(X)

/* The control process: its rings, then what it decides. */
#define MILL_CONTROL_COUNTERS(X)                                                                   \
    X(requests, "frames taken from cores")                                                         \
    X(requests_stale, "frames of a dead millraced, dropped")                                       \
    X(requests_bad, "malformed messages on a frame ring")                                          \
    X(requests_full, "turns in which frames had to stay in a ring because too many waited")        \
    X(answers, "answers given to cores")                                                           \
    X(answers_closed, "answers that close the connection: malformed or over a limit")              \
    X(answers_late, "answers dropped because the core's deadline had passed")                      \
    X(answer_ring_full, "times an answer had to wait for room in a ring or scratch slot")          \
    X(events, "events taken from cores")                                                           \
    X(events_stale, "events of a dead millraced, dropped")                                         \
    X(commands_full, "times a command found its ring full")                                        \
    X(attaches, "times another millraced was attached to")

/* The answers of http.listener. */
#define MILL_HTTP_TOTALS(X)                                                                        \
    X(requests, "requests answered")                                                               \
    X(refused, "connections refused because as many as there may be were open")                    \
    X(slow, "connections closed because a request or answer took too long")
#define MILL_HTTP_LEVELS(X)   X(connections, "connections open now")
#define MILL_HTTP_COUNTERS(X) MILL_HTTP_TOTALS(X) MILL_HTTP_LEVELS(X)

#define MILL_CONTROLLER_TOTALS(X)                                                                  \
    X(topics_created, "topics created")                                                            \
    X(topics_altered, "times a topic got other settings")                                          \
    X(topics_deleted, "topics deleted")                                                            \
    X(topics_grown, "topics that were given more partitions")                                      \
    X(topics_gone, "deleted topics whose files are gone")                                          \
    X(topics_full, "topics refused: as many as there may be")                                      \
    X(partitions_full, "topics refused: as many partitions as there may be")                       \
    X(map_full, "times the partition map had no room")                                             \
    X(store_failed, "failed writes of metadata")                                                   \
    X(id_blocks, "blocks of producer ids given to cores")
#define MILL_CONTROLLER_LEVELS(X)                                                                  \
    X(topics, "topics")                                                                            \
    X(partitions, "partitions of topics")                                                          \
    X(topics_deleting, "topics whose deletion is under way")                                       \
    X(partitions_failed, "partitions whose directory could not be opened")
#define MILL_CONTROLLER_COUNTERS(X) MILL_CONTROLLER_TOTALS(X) MILL_CONTROLLER_LEVELS(X)

/* Control's own records in internal partitions. */
#define MILL_JOURNAL_COUNTERS(X)                                                                   \
    X(journal_appends, "appends to internal partitions asked for")                                 \
    X(journal_requests, "requests that carried them")                                              \
    X(journal_reads, "reads of internal partitions")                                               \
    X(journal_marks, "markers of transactions sent to cores")                                      \
    X(journal_refused, "batches that were not appended")                                           \
    X(journal_unknown, "batches of which nobody knows whether they are in the log")                \
    X(journal_timeouts, "requests that a core did not answer in time")                             \
    X(journal_streams, "streams opened to cores")                                                  \
    X(journal_full, "appends and reads refused because too much waits")                            \
    X(journal_ring_full, "times a request had to wait for room in a ring")

/* Consumer groups. */
#define MILL_GROUP_LEVELS(X)                                                                       \
    X(groups, "groups known now")                                                                  \
    X(group_members, "their members now")                                                          \
    X(group_offsets, "committed offsets known now")                                                \
    X(group_bytes, "memory of groups now")
#define MILL_GROUP_TOTALS(X)                                                                       \
    X(group_joins, "JoinGroup requests")                                                           \
    X(group_rebalances, "rebalances completed")                                                    \
    X(group_expired_members, "members removed because they were silent")                           \
    X(group_commits, "offsets committed")                                                          \
    X(group_commits_failed, "offsets refused, or of unknown outcome")                              \
    X(group_offsets_expired, "committed offsets removed by age or with their topic")               \
    X(group_full, "requests refused because of a limit of groups, members or memory")              \
    X(group_loads, "partitions of __consumer_offsets read")                                        \
    X(group_records_bad, "records or batches in them that could not be read")
#define MILL_GROUP_COUNTERS(X) MILL_GROUP_TOTALS(X) MILL_GROUP_LEVELS(X)

/* Transactions, as their coordinator sees them. */
#define MILL_TXN_LEVELS(X)                                                                         \
    X(txn_ids, "transactional ids known now")                                                      \
    X(txn_bytes, "memory of them now")
#define MILL_TXN_TOTALS(X)                                                                         \
    X(txn_timed_out, "transactions aborted because their time was over")                           \
    X(txn_fenced, "requests of producers that another one has replaced")                           \
    X(txn_expired, "transactional ids removed because they were idle")                             \
    X(txn_marks_again, "markers sent once more")                                                   \
    X(txn_full, "requests refused because of a limit of ids, partitions or memory")                \
    X(txn_loads, "partitions of __transaction_state read")                                         \
    X(txn_records_bad, "records or batches in them that could not be read")
#define MILL_TXN_COUNTERS(X) MILL_TXN_TOTALS(X) MILL_TXN_LEVELS(X)

#endif
