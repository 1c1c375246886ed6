import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The driver of Redisson, for both of its semaphores; the commands are described in ../README.md. It uses the
 * asynchronous interface, which is the faster one with many tasks, and the default settings.
 */
public final class Driver {
    private final String url;
    private final boolean expirable;
    private final long leaseMs;
    private final RedissonClient client;
    private final List<Runnable> hoard = new ArrayList<>();
    private final AtomicLong grants = new AtomicLong();
    private final ScheduledExecutorService timer = Executors.newScheduledThreadPool(2);
    private volatile boolean queueing;

    private Driver(String[] arguments) {
        expirable = arguments[0].equals("expirable");
        url = arguments[1];
        leaseMs = Long.parseLong(arguments[2]);
        client = connect();
    }

    private RedissonClient connect() {
        Config config = new Config();
        config.useSingleServer().setAddress(url.replaceAll("/$", ""));
        return Redisson.create(config);
    }

    /** What both kinds can: one acquisition, and the release of what it gave. */
    private interface Line {
        CompletionStage<String> acquire();

        CompletionStage<?> release(String permit);
    }

    private Line open(RedissonClient redisson, String name, int limit) {
        if (expirable) {
            RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
            semaphore.trySetPermits(limit);
            return new Line() {
                @Override
                public CompletionStage<String> acquire() {
                    // Nothing renews it: a lease is what the longest work needs, or none.
                    return leaseMs > 0
                        ? semaphore.acquireAsync(leaseMs, TimeUnit.MILLISECONDS)
                        : semaphore.acquireAsync();
                }

                @Override
                public CompletionStage<?> release(String permit) {
                    return semaphore.releaseAsync(permit);
                }
            };
        }
        RSemaphore semaphore = redisson.getSemaphore(name);
        semaphore.trySetPermits(limit);
        return new Line() {
            @Override
            public CompletionStage<String> acquire() {
                return semaphore.acquireAsync().thenApply(nothing -> "");
            }

            @Override
            public CompletionStage<?> release(String permit) {
                return semaphore.releaseAsync();
            }
        };
    }

    /** The time by the clock that all processes share. */
    private static double nowUs() {
        return System.nanoTime() / 1e3;
    }

    private static String summary(List<Double> taken, double began) {
        double seconds = (nowUs() - began) / 1e6;
        Collections.sort(taken);
        int last = taken.size() - 1;
        return String.format("{\"cycles\":%d,\"seconds\":%f,\"p50_us\":%f,\"p99_us\":%f,\"max_us\":%f}",
            taken.size(), seconds, taken.get(last / 2), taken.get((int) (last * 0.99)), taken.get(last));
    }

    /** Takes and gives back until it is time, each time as soon as the last has been given back. */
    private void repeat(Line line, double until, List<Double> taken, CompletableFuture<Void> done) {
        double began = nowUs();
        if (began >= until) {
            done.complete(null);
            return;
        }
        line.acquire().thenCompose(line::release).whenComplete((nothing, error) -> {
            if (error != null) {
                done.completeExceptionally(error);
                return;
            }
            taken.add(nowUs() - began);
            repeat(line, until, taken, done);
        });
    }

    private String cycle(String name, int limit, int tasks, double seconds) {
        Line line = open(client, name, limit);
        double began = nowUs();
        List<List<Double>> all = new ArrayList<>();
        List<CompletableFuture<Void>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            List<Double> taken = new ArrayList<>();
            CompletableFuture<Void> done = new CompletableFuture<>();
            all.add(taken);
            running.add(done);
            repeat(line, began + seconds * 1e6, taken, done);
        }
        running.forEach(CompletableFuture::join);
        List<Double> together = new ArrayList<>();
        all.forEach(together::addAll);
        return summary(together, began);
    }

    private String turn(String name, int count) {
        double began = nowUs();
        List<Double> taken = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            double one = nowUs();
            Line line = open(client, name + ":" + number, 4);
            line.release(line.acquire().toCompletableFuture().join()).toCompletableFuture().join();
            taken.add(nowUs() - one);
        }
        return summary(taken, began);
    }

    /** Takes, holds for a while, gives back, rests, and so on. */
    private void contend(
            Line line, double until, long holdUs, long pauseUs, ConcurrentLinkedQueue<String> events,
            CompletableFuture<Void> done) {
        double asked = nowUs();
        if (asked >= until) {
            done.complete(null);
            return;
        }
        line.acquire().whenComplete((permit, error) -> {
            if (error != null) {
                done.completeExceptionally(error);
                return;
            }
            double got = nowUs();
            after(holdUs, () -> {
                double freed = nowUs();
                line.release(permit).whenComplete((nothing, failure) -> {
                    events.add(String.format("[%f,%f,%f]", asked, got, freed));
                    after(pauseUs, () -> contend(line, until, holdUs, pauseUs, events, done));
                });
            });
        });
    }

    private void after(long us, Runnable action) {
        if (us > 0) {
            timer.schedule(action, us, TimeUnit.MICROSECONDS);
        } else {
            action.run();
        }
    }

    private String contend(String name, int limit, int tasks, long holdUs, long pauseUs, double seconds) {
        Line line = open(client, name, limit);
        double until = nowUs() + seconds * 1e6;
        ConcurrentLinkedQueue<String> events = new ConcurrentLinkedQueue<>();
        List<CompletableFuture<Void>> running = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            CompletableFuture<Void> done = new CompletableFuture<>();
            running.add(done);
            contend(line, until, holdUs, pauseUs, events, done);
        }
        running.forEach(CompletableFuture::join);
        return "{\"events\":[" + String.join(",", events) + "]}";
    }

    private String start(String name, int limit) {
        double began = nowUs();
        RedissonClient redisson = connect();
        Line line = open(redisson, name, limit);
        String permit = line.acquire().toCompletableFuture().join();
        double taken = nowUs() - began;
        line.release(permit).toCompletableFuture().join();
        redisson.shutdown(0, 1, TimeUnit.SECONDS);
        return String.format("{\"us\":%f}", taken);
    }

    private String hoard(String name, int count) {
        Line line = open(client, name, count);
        List<CompletableFuture<String>> asked = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            asked.add(line.acquire().toCompletableFuture());
        }
        for (CompletableFuture<String> one : asked) {
            String permit = one.join();
            // One whose lease has ended is gone already.
            hoard.add(() -> line.release(permit).handle((nothing, error) -> error).toCompletableFuture().join());
        }
        return "{\"held\":" + count + "}";
    }

    private void queue(Line line) {
        if (queueing) {
            line.acquire().thenCompose(permit -> {
                grants.incrementAndGet();
                return line.release(permit);
            }).whenComplete((nothing, error) -> queue(line));
        }
    }

    private String queue(String name, int count) {
        // Tried: all requests fail, as they time out before they get one of the connections, 64 by default.
        if (count > 10_000) {
            return "{\"cannot\":\"so many requests of one process time out waiting for a connection\"}";
        }
        Line line = open(client, name, 1);
        queueing = true;
        for (int number = 0; number < count; number++) {
            queue(line);
        }
        return "{\"queued\":" + count + "}";
    }

    private String waitFor(String name) {
        Line line = open(client, name, 1);
        double asked = nowUs();
        String permit = line.acquire().toCompletableFuture().join();
        double got = nowUs();
        line.release(permit).toCompletableFuture().join();
        return String.format("{\"asked\":%f,\"got\":%f}", asked, got);
    }

    private String free() {
        queueing = false;
        hoard.forEach(Runnable::run);
        hoard.clear();
        return "{}";
    }

    private static String version() {
        return Redisson.class.getPackage().getImplementationVersion();
    }

    private String execute(String[] words) {
        switch (words[0]) {
            case "hello":
                return "{\"version\":\"" + version() + "\"}";
            case "start":
                return start(words[1], Integer.parseInt(words[2]));
            case "cycle":
                return cycle(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Double.parseDouble(words[4]));
            case "turn":
                return turn(words[1], Integer.parseInt(words[2]));
            case "contend":
                return contend(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Long.parseLong(words[4]), Long.parseLong(words[5]), Double.parseDouble(words[6]));
            case "hoard":
                return hoard(words[1], Integer.parseInt(words[2]));
            case "queue":
                return queue(words[1], Integer.parseInt(words[2]));
            case "count":
                return "{\"grants\":" + grants.get() + "}";
            case "wait":
                if (!expirable) {
                    return "{\"cannot\":\"no lease: what a crashed process held stays taken\"}";
                }
                return waitFor(words[1]);
            case "free":
                return free();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) {
        int status = 0;
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            Driver driver = new Driver(arguments);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(driver.execute(line.split(" ")));
            }
        } catch (Exception error) {
            System.err.println(error);
            status = 1;
        }
        // The threads of the client would keep the process alive.
        System.exit(status);
    }
}
