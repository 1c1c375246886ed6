// Acquisitions are spans and metrics of OpenTelemetry, in programs that use it.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { context, metrics, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { connect } from 'permits';
import { LIMIT, Program } from './support.js';

const spans = new InMemorySpanExporter();
const points = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter: points, exportIntervalMillis: 2 ** 30 });
context.setGlobalContextManager(new AsyncLocalStorageContextManager());
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));

/** The attributes of the spans of a semaphore. */
function attributesOf(semaphore: string) {
  return spans.getFinishedSpans().flatMap(({ attributes }) => (attributes.semaphore === semaphore ? [attributes] : []));
}

/** The values of a metric of a semaphore, with their reasons. */
async function valuesOf(name: string, semaphore: string): Promise<unknown[][]> {
  points.reset();
  await reader.forceFlush();
  const found = points.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
  const values = found.filter(({ descriptor }) => descriptor.name === name).flatMap(({ dataPoints }) => dataPoints as any[]);
  return values.filter(({ attributes }) => attributes.semaphore === semaphore).map(({ attributes, value }) => [attributes.reason, value]);
}

test('a grant is a span below the active one', { timeout: LIMIT }, async () => {
  await using client = await connect(`memory:${randomUUID()}`);
  const semaphore = client.semaphore('granted', 3);
  const id = await trace.getTracer('program').startActiveSpan('job', async (job) => {
    await semaphore.run(() => {}, { weight: 2, timeout: 30_000 });
    job.end();
    return job.spanContext().spanId;
  });
  const span = spans.getFinishedSpans().find(({ name }) => name === 'acquire');
  assert.equal(span?.parentSpanContext?.spanId, id);
  assert.deepEqual(attributesOf('granted'), [{ semaphore: 'granted', weight: 2, wait: '30s', outcome: 'granted' }]);
  assert.deepEqual(await valuesOf('permits.grants', 'granted'), [[undefined, 1]]);
  const [[, wait]] = (await valuesOf('permits.wait', 'granted')) as [[undefined, any]];
  assert.deepEqual([wait.count, wait.sum < 30, wait.buckets.boundaries], [1, true, [0.001, 0.01, 0.1, 1, 10, 60, 600]]);
});

test('a refusal has its reason', { timeout: LIMIT }, async () => {
  await using client = await connect(`memory:${randomUUID()}`);
  const semaphore = client.semaphore('refused', 1);
  await semaphore.run(async () => {
    await assert.rejects(semaphore.acquire({ timeout: 0 }));
    await assert.rejects(semaphore.acquire({ timeout: 50 }));
    await assert.rejects(semaphore.acquire({ weight: 2 }));
    await assert.rejects(semaphore.acquire({ signal: AbortSignal.timeout(50) }));
  });
  const refused = attributesOf('refused').slice(1);
  assert.deepEqual(
    refused.map((of) => [of.wait, of.outcome, of['error.type']]),
    [
      ['no', 'no_permits', 'NO_PERMITS'],
      ['0.05s', 'timed_out', 'TIMED_OUT'],
      ['unlimited', 'exceeds_limit', 'EXCEEDS_LIMIT'],
      ['unlimited', 'cancelled', 'CANCELLED'],
    ],
  );
  const reasons = await valuesOf('permits.refusals', 'refused');
  assert.deepEqual(
    reasons,
    refused.map(({ outcome }) => [outcome, 1]),
  );
});

test('a set is one span', { timeout: LIMIT }, async () => {
  await using client = await connect(`memory:${randomUUID()}`);
  const [first, second] = ['a', 'b'].map((name) => client.semaphore(name, 3)) as any;
  await using held = await client.acquireAll([first, [second, { weight: 2 }]], { timeout: 5000 });
  assert.equal(held.permits.length, 2);
  await assert.rejects(client.acquireAll([[first, { weight: 2 }], [second, { weight: 2 }]], { timeout: 0 }));
  const [granted, refused] = attributesOf('a,b');
  assert.deepEqual(granted, { semaphore: 'a,b', weight: 3, wait: '5s', outcome: 'granted' });
  assert.equal(refused?.outcome, 'no_permits');
  assert.deepEqual([await valuesOf('permits.grants', 'a'), await valuesOf('permits.grants', 'b')], [[[undefined, 1]], [[undefined, 1]]]);
  // The semaphore that had too few units.
  assert.deepEqual([await valuesOf('permits.refusals', 'a'), await valuesOf('permits.refusals', 'b')], [[], [['no_permits', 1]]]);
});

test('without an SDK nothing is recorded and nothing loaded', { timeout: LIMIT }, async () => {
  const other = new Program(`
    import { connect } from 'permits';
    const client = await connect('memory:');
    await client.semaphore('s', 1).run(() => {});
    console.log(Object.getOwnPropertySymbols(globalThis).filter((symbol) => symbol.description?.includes('opentelemetry')).length);
    await client.close();
  `);
  assert.deepEqual([await other.end(), other.output], [0, '0\n']);
});
