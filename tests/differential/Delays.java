// SPDX-FileCopyrightText: 2026 The redeliver-mw authors
// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.util.Random;
import org.apache.activemq.RedeliveryPolicy;

/**
 * Asks ActiveMQ's own RedeliveryPolicy for its delays, as its consumer does at a rollback: the initial delay, and
 * then each from the one before.
 *
 * <p>A line in: initialRedeliveryDelay redeliveryDelay useExponentialBackOff backOffMultiplier
 * maximumRedeliveryDelay useCollisionAvoidance collisionAvoidancePercent, and for how many failures, and how often.
 * A line out for each time: the delays in milliseconds, with blanks between.
 */
public final class Delays {
    public static void main(String[] arguments) throws Exception {
        Field random = RedeliveryPolicy.class.getDeclaredField("randomNumberGenerator");
        random.setAccessible(true);
        random.set(null, new Random(Long.parseLong(arguments[0])));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            RedeliveryPolicy policy = policy(words);
            for (int time = 0; time < Integer.parseInt(words[8]); time++) {
                chain(policy, Integer.parseInt(words[7]), out);
            }
        }
        System.out.print(out);
    }

    private static RedeliveryPolicy policy(String[] words) {
        RedeliveryPolicy policy = new RedeliveryPolicy();
        policy.setInitialRedeliveryDelay(Long.parseLong(words[0]));
        policy.setRedeliveryDelay(Long.parseLong(words[1]));
        policy.setUseExponentialBackOff(Boolean.parseBoolean(words[2]));
        policy.setBackOffMultiplier(Double.parseDouble(words[3]));
        policy.setMaximumRedeliveryDelay(Long.parseLong(words[4]));
        policy.setUseCollisionAvoidance(Boolean.parseBoolean(words[5]));
        policy.setCollisionAvoidancePercent(Short.parseShort(words[6]));
        return policy;
    }

    private static void chain(RedeliveryPolicy policy, int failures, StringBuilder out) {
        long delay = policy.getInitialRedeliveryDelay();
        out.append(delay);
        for (int failure = 2; failure <= failures; failure++) {
            delay = policy.getNextRedeliveryDelay(delay);
            out.append(' ').append(delay);
        }
        out.append('\n');
    }
}
