// Makes a module of each TypeScript block of the documents, in the directory of the second argument. A block
// of the cookbook becomes a function of a client and of the functions that it calls.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [root, directory] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const blocksOf = (text) => [...text.matchAll(/^```ts\n(.*?)^```/gms)].map(([, block]) => block);

const USE = readdirSync(join(root, 'docs/use')).map((page) => `docs/use/${page}`);
for (const page of ['docs/languages/node.md', 'docs/migration.md', ...USE, 'README.md', 'bindings/node/README.md']) {
  const text = readFileSync(join(root, page), 'utf8');
  for (const [index, block] of blocksOf(text).entries()) {
    const lacks = (name) => new RegExp(`\\b${name}\\.`).test(block) && !new RegExp(`const ${name}\\b`).test(block);
    const opening = [];
    if (lacks('client') || lacks('exports')) {
      opening.push(`import * as permits from 'permits';`, `const client = await permits.connect('redis://127.0.0.1/');`);
    }
    if (lacks('exports')) {
      opening.push(`const exports = client.semaphore('exports', 4);`);
    }
    const module = `${opening.join('\n')}\n${block}`.replace(/'redis:\/\/127\.0\.0\.1\/'/g, 'process.env.TEST_URL!');
    writeFileSync(join(directory, `${page.replace(/\W+/g, '-')}-${index}.mts`), module);
  }
}

const FUNCTIONS =
  'answer backup callApi deploy migrate nextJob post read reindex simulate step work write'.split(' ');
const entries = readFileSync(join(root, 'docs/cookbook.md'), 'utf8').split('\n## ').slice(1);
for (const [index, entry] of entries.entries()) {
  for (const block of blocksOf(entry)) {
    const called = FUNCTIONS.filter((name) => new RegExp(`(?<!\\.)\\b${name}\\(`).test(block));
    const module = `import type { Client } from 'permits';
      export const heading = ${JSON.stringify(entry.split('\n')[0])};
      export async function block(client: Client, { ${called} }: any): Promise<void> {\n${block}}`;
    writeFileSync(join(directory, `cookbook-${index}.mts`), module);
  }
}
