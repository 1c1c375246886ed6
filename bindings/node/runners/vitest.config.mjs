// The tests of requests and of errors in Vitest, whose pool `vmThreads` has a realm for each file, and the
// test that a page shows.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

export default {
  root,
  // Older versions of Node do not know `await using`.
  esbuild: { target: 'es2022' },
  resolve: { alias: { permits: join(root, 'dist/lib/index.js'), 'node:test': join(root, 'runners/tests.cjs') } },
  test: {
    pool: 'vmThreads',
    globals: true,
    include: ['tests/{requests,errors,signals}.test.ts', 'tests/blocks/*.test.mjs'],
    testTimeout: 300_000,
    server: { deps: { external: [/dist\/lib/, /tests\.cjs$/] } },
  },
};
