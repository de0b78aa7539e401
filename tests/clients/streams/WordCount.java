// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** WordCount ADDRESS INPUT OUTPUT FOLDER GUARANTEE: counts the words of the lines in INPUT. Nothing is cached, so OUTPUT
    gets each count of each word: 1, 2, 3, ... Runs until it is killed; FOLDER outlives it, and with it its names. */
public class WordCount {
    private static final String COMMIT_MS = "300";
    private static final String SESSION_MS = "6000";
    private static final String THREADS = "2";

    private static Properties settings(String address, String folder, String guarantee) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, COMMIT_MS);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, THREADS);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), SESSION_MS);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), "5");
        return settings;
    }

    public static void main(String[] words) throws InterruptedException {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(words[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(words[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(words[0], words[3], words[4]));
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        // A thread that was fenced or lost its broker for too long is replaced, as applications do it.
        streams.setUncaughtExceptionHandler(fault -> {
            System.out.println("thread replaced: " + fault);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        new CountDownLatch(1).await();
    }
}
