import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The driver of Redisson's RRateLimiter, for `scripts/lab rates`; the commands are described in ../README.md. The
 * clients of a process share one RedissonClient, as its documentation asks for. Each has an RRateLimiter, and each waits by
 * itself: Redisson has no queue of them.
 */
public final class RateDriver {
    private final RedissonClient client;
    private final Set<String> made = new HashSet<>();

    private RateDriver(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url.replaceAll("/$", ""));
        client = Redisson.create(config);
    }

    /** The time by the clock that all processes share. */
    private static double nowUs() {
        return System.nanoTime() / 1e3;
    }

    /** Acquires until it is time, each time as soon as the last has been granted. */
    private void repeat(
            RRateLimiter limiter, double until, ConcurrentLinkedQueue<String> events, CompletableFuture<Void> done) {
        double asked = nowUs();
        if (asked >= until) {
            done.complete(null);
            return;
        }
        limiter.acquireAsync(1).whenComplete((nothing, error) -> {
            if (error != null) {
                done.completeExceptionally(error);
                return;
            }
            double got = nowUs();
            events.add(String.format("[%f,%f,%f]", asked, got, got));
            repeat(limiter, until, events, done);
        });
    }

    private String admit(String name, long limit, long windowMs, int clients, double seconds) {
        double until = nowUs() + seconds * 1e6;
        ConcurrentLinkedQueue<String> events = new ConcurrentLinkedQueue<>();
        List<CompletableFuture<Void>> running = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            RRateLimiter limiter = client.getRateLimiter(name);
            if (made.add(name + " " + number)) {
                limiter.trySetRate(RateType.OVERALL, limit, Duration.ofMillis(windowMs));
            }
            CompletableFuture<Void> done = new CompletableFuture<>();
            running.add(done);
            repeat(limiter, until, events, done);
        }
        running.forEach(CompletableFuture::join);
        return "{\"events\":[" + String.join(",", events) + "]}";
    }

    private String execute(String[] words) {
        switch (words[0]) {
            case "hello":
                return "{\"version\":\"" + Redisson.class.getPackage().getImplementationVersion() + "\"}";
            case "admit":
                return admit(words[1], Long.parseLong(words[2]), Long.parseLong(words[3]),
                    Integer.parseInt(words[4]), Double.parseDouble(words[5]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) {
        int status = 0;
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            RateDriver driver = new RateDriver(arguments[0]);
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
