// SPDX-FileCopyrightText: 2026 The redeliver-mw authors
// SPDX-License-Identifier: Apache-2.0

import jms.Connection;
import jms.JMSException;
import jms.Session;
import jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * Consumers on ActiveMQ's own client, which roll their sessions back as often as each message says, and a stop-watch.
 *
 * <p>Arguments: user, password, and for each queue the broker's URL with the policy, and its name. The text of a
 * message is "number failures": it fails so often, then its session is committed. A line out for each delivery:
 * number, JMSXDeliveryCount, and the microseconds since the last rollback. It ends with its input.
 */
public final class Failing {
    private long failedAt;

    public static void main(String[] arguments) throws Exception {
        for (int place = 2; place < arguments.length; place += 2) {
            ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[place]);
            Connection connection = factory.createConnection(arguments[0], arguments[1]);
            new Failing().consume(connection.createSession(true, Session.SESSION_TRANSACTED), arguments[place + 1]);
            connection.start();
        }
        System.out.println("started");
        while (System.in.read() >= 0) {
            // nothing is ever said there
        }
        System.exit(0);
    }

    private void consume(Session session, String queue) throws JMSException {
        session.createConsumer(session.createQueue(queue)).setMessageListener(message -> {
            long rest = (System.nanoTime() - failedAt) / 1000;
            try {
                String[] words = ((TextMessage) message).getText().split(" ");
                int count = message.getIntProperty("JMSXDeliveryCount");
                System.out.println(words[0] + " " + count + " " + rest);
                if (count > Integer.parseInt(words[1])) {
                    session.commit();
                } else {
                    failedAt = System.nanoTime();
                    session.rollback();
                }
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
    }
}
