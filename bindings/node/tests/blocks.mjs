// Makes a module of each TypeScript block of the documents, in the directory of the second argument.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const [root, directory] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
for (const page of ['docs/node.md', 'docs/migration.md', 'README.md', 'bindings/node/README.md']) {
  const text = readFileSync(join(root, page), 'utf8');
  for (const [index, [, block]] of [...text.matchAll(/^```ts\n(.*?)^```/gms)].entries()) {
    const has = (name) => new RegExp(`const ${name}\\b`).test(block);
    const opening = [`import * as permits from 'permits';`, 'void permits;'];
    if (!has('client')) {
      opening.push(`const client = await permits.connect('redis://127.0.0.1/');`);
    }
    if (!has('exports')) {
      opening.push(`const exports = client.semaphore('exports', 4); void exports;`);
    }
    const module = `${opening.join('\n')}\n${block}`.replace(/'redis:\/\/127\.0\.0\.1\/'/g, 'process.env.TEST_URL!');
    writeFileSync(join(directory, `${basename(page === 'README.md' ? 'top' : page, '.md')}-${index}.mts`), module);
  }
}
