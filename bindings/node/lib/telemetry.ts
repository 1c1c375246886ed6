// A span and metrics for each acquisition, in programs that use OpenTelemetry.
//
// Nothing is loaded: the API of OpenTelemetry keeps its providers in a global symbol, so that all its copies
// in a program share them, and there they are once the program has registered an SDK. In other programs an
// acquisition costs one lookup more.
//
// The names are those of the Rust library. OpenTelemetry's exporters for Prometheus turn `permits.wait`, in
// seconds, into `permits_wait_seconds`, and `permits.grants` into `permits_grants_total`.

import { PermitsError } from './errors.js';

type Attributes = Record<string, string | number>;

interface Span {
  setAttribute(name: string, value: string | number): unknown;
  end(): void;
}

interface Meter {
  createHistogram(name: string, options: object): { record(value: number, attributes: Attributes): void };
  createCounter(name: string, options: object): { add(value: number, attributes: Attributes): void };
}

/** What the providers have that is used here. */
interface Api {
  trace?: { getTracer(name: string): { startSpan(name: string, options: { attributes: Attributes }): Span } };
  metrics?: { getMeter(name: string): Meter };
}

// The number is the major version of the API.
const GLOBAL = Symbol.for('opentelemetry.js.api.1');

/** A request as telemetry shows it. */
interface Observed {
  semaphores: readonly string[];
  weight: number;
  /** In milliseconds. */
  timeout: number | null | undefined;
}

/** Waits for an acquisition by `wait`, in a span. */
export function observed<T>(request: Observed, wait: () => Promise<T>): Promise<T> {
  const api = (globalThis as Record<symbol, unknown>)[GLOBAL] as Api | undefined;
  return api?.trace === undefined && api?.metrics === undefined ? wait() : observedBy(api, request, wait);
}

async function observedBy<T>(api: Api, { semaphores, weight, timeout }: Observed, wait: () => Promise<T>): Promise<T> {
  const attributes = { semaphore: semaphores.join(), weight, wait: shown(timeout) };
  // The parent is the span that is active here.
  const span = api.trace?.getTracer('permits').startSpan('acquire', { attributes });
  const instruments = instrumentsOf(api.metrics);
  const began = performance.now();
  try {
    const acquired = await wait();
    span?.setAttribute('outcome', 'granted');
    for (const semaphore of semaphores) {
      instruments?.waits.record((performance.now() - began) / 1000, { semaphore });
      instruments?.grants.add(1, { semaphore });
    }
    return acquired;
  } catch (error) {
    const known = error instanceof PermitsError ? error : undefined;
    const reason = outcome(known);
    span?.setAttribute('outcome', reason);
    span?.setAttribute('error.type', known?.code ?? 'CANCELLED');
    instruments?.refusals.add(1, { semaphore: known?.details.semaphore ?? semaphores[0] ?? '', reason });
    throw error;
  } finally {
    span?.end();
  }
}

type Instruments = ReturnType<typeof made>;
let known: { provider: Api['metrics']; instruments: Instruments } | undefined;

/** The instruments of the registered provider, made once. */
function instrumentsOf(provider: Api['metrics']): Instruments | undefined {
  if (provider !== undefined && known?.provider !== provider) {
    known = { provider, instruments: made(provider.getMeter('permits')) };
  }
  return provider && known?.instruments;
}

function made(meter: Meter) {
  return {
    waits: meter.createHistogram('permits.wait', {
      unit: 's',
      description: 'The time from a request to its grant.',
      // Those of docs/operate/monitor.md: an alert compares with 60 s.
      advice: { explicitBucketBoundaries: [0.001, 0.01, 0.1, 1, 10, 60, 600] },
    }),
    grants: meter.createCounter('permits.grants', { description: 'The acquisitions that were granted.' }),
    refusals: meter.createCounter('permits.refusals', { description: 'The acquisitions that ended without a permit.' }),
  };
}

function shown(timeout: number | null | undefined): string {
  if (timeout === undefined || timeout === null || timeout === Infinity) {
    return 'unlimited';
  }
  return timeout > 0 ? `${timeout / 1000}s` : 'no';
}

function outcome(error: PermitsError | undefined): string {
  // An acquisition that ended without an error of this package was cancelled by an `AbortSignal`.
  return error?.code.toLowerCase() ?? 'cancelled';
}
