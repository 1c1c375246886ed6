// The tests of requests and of errors in Jest: in the realm of its environment `node`, and in that of jsdom.
const { join } = require('node:path');

const common = {
  rootDir: join(__dirname, '..'),
  testMatch: ['<rootDir>/dist/tests/{requests,errors,signals}.test.js'],
  transform: {},
  moduleNameMapper: {
    '^permits$': '<rootDir>/dist/lib/index.js',
    '^permits/package.json$': '<rootDir>/package.json',
    '^node:test$': '<rootDir>/runners/tests.cjs',
  },
};

module.exports = {
  testTimeout: 300_000,
  projects: [
    { ...common, displayName: 'node', testEnvironment: 'node' },
    { ...common, displayName: 'jsdom', testEnvironment: 'jsdom', testEnvironmentOptions: { customExportConditions: ['node'] } },
  ],
};
